"""The runner: one step from plan to result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from core.api.attention import AttentionBackend
from core.api.models import Model
from core.api.participants import SampledStep
from core.engine.profile import Timer, untimed
from core.engine.step import NewRow, StepPlan, StepResult
from core.worker.graphs import GraphedForward
from core.worker.guarded import GuardedBackend, GuardedModel
from core.worker.inputs import InputBuilder, StepInputs
from core.worker.late import Positions, bound, gains, positions
from core.worker.participants.stages import Late, WorkerStages
from core.worker.rows import RowTable
from core.worker.sampling.batch import Feature, SampleBatch
from core.worker.sampling.prompt import PromptScorer
from core.worker.sampling.sampler import Sampled, Sampler
from core.worker.tainted import TaintedBlocks

NO_TOKEN = -1


class StepRunner(ABC):
    """Executes plans in order, on one thread: everything but what becomes of the hidden states.

    Args:
        caches: KV cache of each layer, `(num_blocks, ...)`.
        graphed: The forward pass by the platform's graphs, if it has some.

    Attributes:
        stages: Who takes part in every step.
    """

    def __init__(
        self,
        model: Model | GuardedModel,
        backend: AttentionBackend | GuardedBackend,
        caches: Sequence[Tensor],
        rows: RowTable,
        graphed: GraphedForward | None = None,
    ) -> None:
        self._model = model
        self._graphed = graphed
        self._inputs = InputBuilder(rows, backend)
        self._rows = rows
        self._tainted = TaintedBlocks(caches, rows.block_size)
        self.stages = WorkerStages()
        self._late: Late | None = None
        self.time(untimed)

    @property
    def tokens(self) -> Tensor:
        """The tokens of every row, `(max_rows, tokens)` int32."""
        return self._rows.tokens

    def time(self, timer: Timer) -> None:
        """Have the phases of every step timed, or no longer (`untimed`)."""
        self._step = timer("step", self._execute)
        self._build = timer("build inputs", self._step_inputs)
        self._forward = timer("forward", self._graphed or self._plain)

    @torch.inference_mode()
    def execute(self, plan: StepPlan, late: Late | None = None) -> StepResult:
        """Run one step. A row that fails numerically is reported in `errors`; the others are not touched by it.

        Args:
            late: Waits for the late parts of a plan that announces some; called when everything else is done.
        """
        self._late = late
        return self._step(plan)

    def _execute(self, plan: StepPlan) -> StepResult:
        self._apply(plan)
        result = StepResult(plan.number, np.zeros(0, dtype=np.int32))
        result.lost = self.stages.begin(plan)
        if result.lost:
            self._tainted.empty(result.lost)
        if len(plan.rows):
            try:
                self._run(plan, result)
            except Exception:
                self._taint(plan, range(len(plan.rows)))  # whoever gets their blocks must not read what was left there
                raise
        self.stages.end(plan, result)
        return result

    def close(self) -> None:
        """Close the participants. Harmless twice."""
        self.stages.close()

    def weights_replaced(self) -> None:
        """Drop what was derived from the old weights."""
        if self._graphed is not None:
            self._graphed.forget()
        self.stages.weights_replaced()

    def _apply(self, plan: StepPlan) -> None:
        if plan.new_rows:
            self._rows.admit(plan.new_rows)
            self._admit(plan.new_rows)
        self._tainted.clean(plan)
        self._rows.update_blocks(plan.blocks)
        if plan.leaving:
            self.stages.dismiss(plan.leaving)

    def _step_inputs(self, plan: StepPlan) -> StepInputs:
        return self.stages.inputs(plan, self._inputs.build(plan))

    @abstractmethod
    def _admit(self, new_rows: Sequence[NewRow]) -> None:
        """Requests got their rows."""

    @abstractmethod
    def _run(self, plan: StepPlan, result: StepResult) -> None:
        """Run a plan that has rows, and fill the result."""

    def _taint(self, plan: StepPlan, failed: Iterable[int]) -> None:
        """Remember the blocks of the rows that failed, by their places in the plan."""
        for i in failed:
            self._tainted.mark(self._rows.blocks_of(int(plan.rows[i]), int(plan.starts[i] + plan.counts[i])))

    def _plain(self, inputs: StepInputs) -> Tensor:
        return self._model.forward(inputs)


class Runner(StepRunner):
    """Samples tokens. Arguments as those of `StepRunner`."""

    def __init__(
        self,
        model: Model | GuardedModel,
        backend: AttentionBackend | GuardedBackend,
        caches: Sequence[Tensor],
        rows: RowTable,
        sampler: Sampler,
        graphed: GraphedForward | None = None,
    ) -> None:
        self._sampler = sampler
        self._scorer = PromptScorer(model.logits, rows, sampler.params)
        super().__init__(model, backend, caches, rows, graphed)

    def time(self, timer: Timer) -> None:
        """Have the phases of every step timed, or no longer (`untimed`)."""
        super().time(timer)
        self._choose = timer("sample", self._sample)

    def _admit(self, new_rows: Sequence[NewRow]) -> None:
        self._sampler.admit(new_rows)
        for new in new_rows:
            self._scorer.admit(new.row)

    def _run(self, plan: StepPlan, result: StepResult) -> None:
        if plan.drafts is not None:
            plan = bound(plan, self._rows, self._sampler.single, self.stages.drafts)
        inputs = self._build(plan)
        hidden = self._forward(inputs)
        prompt = self._scorer.score(plan, inputs.batch.query_starts, hidden)
        result.prompt_logprobs, result.errors = prompt.logprobs, prompt.errors
        sampling = np.flatnonzero(plan.samples)
        if len(sampling):
            self._choose(plan, inputs, hidden, sampling, result)
        self._taint(plan, result.errors)

    def _sample(
        self, plan: StepPlan, inputs: StepInputs, hidden: Tensor, sampling: np.ndarray, result: StepResult
    ) -> None:
        # A pure decode step samples from every token as it is.
        every = len(inputs.logit_indices) == len(hidden)
        logits = self._model.logits(hidden if every else hidden[inputs.logit_indices])
        at = positions(plan, sampling, inputs.batch.seq_lens)
        flags = self._sampler.params.flags[at.rows]
        allowed = self.stages.allowed(plan, self._late) if plan.late else {}
        if allowed:
            flags[np.isin(at.rows, list(allowed))] |= Feature.CONSTRAINED
        batch = SampleBatch(at.rows, flags, at.outputs, at.known, self._rows.tokens, allowed, at.ahead)
        sampled = self._sampler.sample(logits, batch)
        if plan.drafts is not None:
            sampled, at = self._keep(sampled, at, inputs, allowed, result)
        self._rows.write_tokens(at.rows, at.known, sampled.tokens)
        result.tokens = sampled.tokens.cpu().numpy().astype(np.int32)
        if sampled.logprobs or sampled.errors or result.errors:
            _report(sampled, at.places, result)
        self.stages.sampled(lambda: SampledStep(at.rows, at.known, result.tokens, self._rows.tokens))

    def _keep(
        self, sampled: Sampled, at: Positions, inputs: StepInputs, constrained: Iterable[int], result: StepResult
    ) -> tuple[Sampled, Positions]:
        """Keep what was sampled up to the first wrong draft of each row."""
        if at.ahead is not None:
            follows = (inputs.logit_indices + 1).clamp_(max=len(inputs.token_ids) - 1)
            agrees = (sampled.tokens == inputs.token_ids[follows]).cpu().numpy()
            result.counts = gains(at, agrees, sampled.errors, constrained)
            kept = np.flatnonzero(at.ahead < np.repeat(result.counts, np.diff(_bounds(at.ahead))))
            sampled, at = sampled.take(kept), at.take(kept)
        self._rows.known[at.rows] = at.known + 1  # the last entry of a row counts
        return sampled, at


def _bounds(ahead: np.ndarray) -> np.ndarray:
    """Return where each row's positions begin, and where the last ones end."""
    return np.append(np.flatnonzero(ahead == 0), len(ahead))


def _report(sampled: Sampled, places: np.ndarray, result: StepResult) -> None:
    """Add what is not a token to the result; a row that failed has none."""
    for index, message in sampled.errors.items():
        result.errors[int(places[index])] = message
    failed = np.isin(places, list(result.errors))
    result.tokens[failed] = NO_TOKEN
    result.logprobs = {index: entry for index, entry in sampled.logprobs.items() if not failed[index]}
