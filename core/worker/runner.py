"""The runner: one step from plan to result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from core.api.models import Model
from core.api.participants import SampledStep
from core.api.platform import Done, Pending
from core.api.runners import Enqueued, Timer
from core.api.steps import NewRow, StepPlan, StepResult
from core.engine.blocks import NULL_BLOCK
from core.engine.profile import untimed
from core.worker.graphs import GraphedForward
from core.worker.guarded import GuardedModel
from core.worker.inputs import InputBuilder, Planner, StepInputs
from core.worker.late import Positions, bound, gains, positions
from core.worker.participants.stages import Late, WorkerStages
from core.worker.rows import RowTable
from core.worker.sampling.batch import Feature, SampleBatch
from core.worker.sampling.prompt import PromptScorer, PromptScores
from core.worker.sampling.sampled import Sampled, SampledOnHost
from core.worker.sampling.sampler import Sampler
from core.worker.states import copy_slots
from core.worker.tainted import TaintedBlocks
from core.worker.transfers import Then

NO_TOKEN = -1


class StepRunner(ABC):
    """Executes plans in order, on one thread: everything but what becomes of the hidden states.

    Where the device has a queue, a step is enqueued as a whole and its results are fetched together: nothing waits
    before `Pending.result`, but the steps that need the host in between (see `Runner`).

    Args:
        caches: KV cache of each layer, `(num_blocks, ...)`.
        graphed: The forward pass by the platform's graphs, if it has some.

    Attributes:
        stages: Who takes part in every step.
    """

    def __init__(
        self,
        model: Model | GuardedModel,
        backend: Planner,
        caches: Sequence[Tensor],
        rows: RowTable,
        graphed: GraphedForward | None = None,
    ) -> None:
        self._model = model
        self._graphed = graphed
        self._inputs = InputBuilder(rows, backend)
        self._rows = rows
        self._transfers = rows.transfers
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
    def begin(self, plan: StepPlan, late: Late | None = None) -> Pending[StepResult]:
        """Begin a step and return its result to come. On a device without a queue it is done then.

        A row that fails numerically is reported in `errors`; the others are not touched by it.

        Args:
            late: Waits for the late parts of a plan that announces some; called when everything else is enqueued.
        """
        self._late = late
        return self._step(plan)

    def execute(self, plan: StepPlan, late: Late | None = None) -> StepResult:
        """Run one step and wait for it. As `begin`."""
        return self.begin(plan, late).result()

    def _execute(self, plan: StepPlan) -> Pending[StepResult]:
        self._apply(plan)
        result = StepResult(plan.number, np.zeros(0, dtype=np.int32))
        result.lost = self.stages.begin(plan)
        if result.lost:
            self._tainted.empty(result.lost)
        pending: Pending[StepResult] = Done(result)
        if plan.states is not None:
            copy_slots(self._rows.states, plan.states.loads)
        if len(plan.rows):
            try:
                pending = self._fetched(plan, result, self._run(plan, result))
                if plan.states is not None:
                    copy_slots(self._rows.states, plan.states.keeps)
            except Exception:
                self._taint(plan, range(len(plan.rows)))  # whoever gets their blocks must not read what was left there
                raise
        self.stages.end(plan, result)
        return pending

    def _fetched(self, plan: StepPlan, result: StepResult, enqueued: Enqueued) -> Pending[StepResult]:
        """Have the rest of a step's result fetched, and filled in when it is there."""
        pending = self._transfers.fetch(enqueued.tensors)
        if self._transfers.queue is None:
            enqueued.finish(pending.result())
            self._taint(plan, result.errors)
            return Done(result)
        # What failed is known later, when its row may be another's.
        tables = self._rows.tables_of(plan.rows, int((plan.starts + plan.counts).max()))

        def finished(arrays: list[np.ndarray]) -> StepResult:
            enqueued.finish(arrays)
            self._taint(plan, result.errors, tables)
            return result

        return Then(pending, finished, lambda: self._taint(plan, range(len(plan.rows)), tables))

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
    def _run(self, plan: StepPlan, result: StepResult) -> Enqueued:
        """Enqueue a plan that has rows, and return what fills the result."""

    def _taint(self, plan: StepPlan, failed: Iterable[int], tables: np.ndarray | None = None) -> None:
        """Remember the blocks of the rows that failed, by their places in the plan.

        Args:
            tables: Of the plan's rows when they ran; None: they are the same still.
        """
        for i in failed:
            tokens = int(plan.starts[i] + plan.counts[i])
            if tables is None:
                self._tainted.mark(self._rows.blocks_of(int(plan.rows[i]), tokens).copy())
            else:
                held = tables[:, i, : -(-tokens // self._rows.block_size)]
                self._tainted.mark(held[held != NULL_BLOCK])

    def _plain(self, inputs: StepInputs) -> Tensor:
        return self._model.forward(inputs)


class Runner(StepRunner):
    """Samples tokens. Arguments as those of `StepRunner`."""

    def __init__(
        self,
        model: Model | GuardedModel,
        backend: Planner,
        caches: Sequence[Tensor],
        rows: RowTable,
        sampler: Sampler,
        graphed: GraphedForward | None = None,
    ) -> None:
        self._sampler = sampler
        self._scorer = PromptScorer(model.logits, rows, sampler.params)
        super().__init__(model, backend, caches, rows, graphed)
        if graphed is not None:
            graphed.lead_to(self._head)

    def time(self, timer: Timer) -> None:
        """Have the phases of every step timed, or no longer (`untimed`)."""
        super().time(timer)
        self._choose = timer("sample", self._sample)

    def _admit(self, new_rows: Sequence[NewRow]) -> None:
        self._sampler.admit(new_rows)
        for new in new_rows:
            self._scorer.admit(new.row)

    def _run(self, plan: StepPlan, result: StepResult) -> Enqueued:
        if plan.drafts is not None:
            plan = bound(plan, self._rows, self._sampler.single, self.stages.drafts)
        inputs = self._build(plan)
        hidden = self._forward(inputs)
        prompt = self._scorer.score(plan, inputs.batch.query_starts, hidden)
        sampling = np.flatnonzero(plan.samples)
        if not len(sampling):
            return Enqueued(prompt.tensors(), lambda arrays: prompt.read(arrays, result))
        return self._choose(plan, inputs, hidden, sampling, prompt, result)

    def _sample(
        self,
        plan: StepPlan,
        inputs: StepInputs,
        hidden: Tensor,
        sampling: np.ndarray,
        prompt: PromptScores,
        result: StepResult,
    ) -> Enqueued:
        # A pure decode step samples from every token as it is.
        every = len(inputs.logit_indices) == len(hidden)
        headed = None if self._graphed is None or not every else self._graphed.headed
        logits, best, tokens = headed or self._head(hidden if every else hidden[inputs.logit_indices])
        at = positions(plan, sampling, inputs.batch.seq_lens)
        flags = self._sampler.params.flags[at.rows]
        allowed = self.stages.allowed(plan, self._late) if plan.late else {}
        if allowed:
            flags[np.isin(at.rows, list(allowed))] |= Feature.CONSTRAINED
        batch = SampleBatch(at.rows, flags, at.outputs, at.known, self._rows.tokens, allowed, at.ahead)
        sampled = self._sampler.sample(logits, batch, best, tokens)
        if plan.drafts is not None:
            return self._verified(sampled, at, inputs, allowed, prompt, result)
        self._rows.write_tokens(at.rows, at.known, sampled.tokens, inputs.targets)
        if not self.stages.listen:
            return _enqueued(sampled, at.places, prompt, result)
        # The host waits: participants act on the tokens before the next step begins.
        chosen, _ = self._read(sampled, prompt, result)
        return self._settled(chosen, at, result)

    def _head(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits `(n, vocab)`, and of each row the best, `(n,)` float32, and its token, `(n,)` int64."""
        logits = self._model.logits(hidden)
        return logits, *self._sampler.best(logits)

    def _verified(
        self,
        sampled: Sampled,
        at: Positions,
        inputs: StepInputs,
        constrained: Iterable[int],
        prompt: PromptScores,
        result: StepResult,
    ) -> Enqueued:
        """Keep what was sampled up to the first wrong draft of each row.

        The host waits: it says how far each row has come, and where the next step's tokens stand.
        """
        agrees: list[Tensor] = []
        if at.ahead is not None:
            follows = (inputs.logit_indices + 1).clamp_(max=len(inputs.token_ids) - 1)
            agrees = [sampled.tokens == inputs.token_ids[follows]]
        chosen, further = self._read(sampled, prompt, result, agrees)
        tokens = sampled.tokens
        if at.ahead is not None:
            result.counts = gains(at, further[0], chosen.errors, constrained)
            kept = np.flatnonzero(at.ahead < np.repeat(result.counts, np.diff(_bounds(at.ahead))))
            tokens, chosen, at = tokens[self._transfers.upload(kept)], chosen.take(kept), at.take(kept)
        self._rows.known[at.rows] = at.known + 1  # the last entry of a row counts
        self._rows.write_tokens(at.rows, at.known, tokens)
        return self._settled(chosen, at, result)

    def _read(
        self, sampled: Sampled, prompt: PromptScores, result: StepResult, further: Sequence[Tensor] = ()
    ) -> tuple[SampledOnHost, list[np.ndarray]]:
        """Wait for what was sampled, and for `further` tensors; put what the prompts scored into the result."""
        asked, own = prompt.tensors(), sampled.tensors()
        arrays = self._transfers.fetch([*asked, *own, *further]).result()
        prompt.read(arrays[: len(asked)], result)
        chosen = sampled.read(arrays[len(asked) : len(asked) + len(own)])
        return chosen, arrays[len(asked) + len(own) :]

    def _settled(self, chosen: SampledOnHost, at: Positions, result: StepResult) -> Enqueued:
        """Fill the result with what is on the host already, and tell participants."""
        _fill(chosen, at.places, result)
        self.stages.sampled(lambda: SampledStep(at.rows, at.known, result.tokens, self._rows.tokens))
        return Enqueued()


def _enqueued(sampled: Sampled, places: np.ndarray, prompt: PromptScores, result: StepResult) -> Enqueued:
    """Return what fills the result with what was sampled for the rows at `places (n,)` of the plan."""
    asked = prompt.tensors()

    def finish(arrays: list[np.ndarray]) -> None:
        prompt.read(arrays[: len(asked)], result)
        _fill(sampled.read(arrays[len(asked) :]), places, result)

    return Enqueued([*asked, *sampled.tensors()], finish)


def _bounds(ahead: np.ndarray) -> np.ndarray:
    """Return where each row's positions begin, and where the last ones end."""
    return np.append(np.flatnonzero(ahead == 0), len(ahead))


def _fill(chosen: SampledOnHost, places: np.ndarray, result: StepResult) -> None:
    """Put what was chosen for the rows at `places (n,)` of the plan into the result; a row that failed has no token."""
    result.tokens, result.logprobs = chosen.tokens, chosen.logprobs
    for index, message in chosen.errors.items():
        result.errors[int(places[index])] = message
    if result.errors:
        failed = np.isin(places, list(result.errors))
        result.tokens[failed] = NO_TOKEN
        result.logprobs = {index: entry for index, entry in result.logprobs.items() if not failed[index]}
