"""Settling a step: tokens become known, requests end, outputs are made."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core.api.steps import StepResult, TopLogprobs
from core.engine.drafting import Gained, behind, gained, settle_drafts
from core.engine.messages import Finished, Logprobs, Outputs, Reason, Started
from core.engine.request import Request
from core.engine.scheduler import Scheduler, Step
from core.plugins.drivers import describe

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Totals:
    """Counters of settled work, growing for the engine's whole life."""

    steps: int = 0
    scheduled_tokens: int = 0
    prompt_tokens: int = 0
    wasted_tokens: int = 0
    finished: Counter[str] = field(default_factory=Counter)


class Settler:
    """Applies step results to the scheduler's state, in the order the steps were launched."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.totals = Totals()
        self._settle_result = scheduler.task.settle if scheduler.task.decodes else self._settle_plugins

    def settle(self, step: Step, result: StepResult) -> Outputs:
        """Account for one result and return what the clients should learn.

        A row whose request has ended since the step was launched (its epoch moved on) is dropped: that is the price of
        launching ahead, one wasted token per stop that could not be foreseen. So is a row that needed a block that was
        not filled: it runs again.
        """
        self.scheduler.stages.collect(step.plan, result)
        self.scheduler.settle_loads(step.plan.number, result.lost)
        alive = self._alive(step)
        self._count(step, alive)
        outputs = Outputs(started=self.take_started(), finished=self.take_refused())
        if result.errors:
            self._fail_rows(step, alive, result, outputs)
            alive = self._alive(step)
        if len(alive):  # a step may run for a participant alone
            self._settle_result(self, step, alive, result, outputs)
        return outputs

    def fail(self, step: Step, error: str) -> Outputs:
        """End every request of a step that failed as a whole, and drop the cache, whose content is now unknown.

        Steps launched ahead may have admitted requests on blocks that this one should have filled. Which blocks those
        were is not kept, so whoever they admitted on cached blocks ends as well.
        """
        outputs = Outputs(started=self.take_started(), finished=self.take_refused())
        for i in np.flatnonzero(self._alive(step)).tolist():
            self._finish_row(int(step.plan.rows[i]), "error", outputs, error=error)
        for request in self.scheduler.sharing_since(step.plan.number):
            self._finish_row(request.row, "error", outputs, error=error)
        self.scheduler.settle_loads(step.plan.number, None)
        self.scheduler.forget_cache()
        return outputs

    def settle_tokens(self, step: Step, alive: np.ndarray, result: StepResult, outputs: Outputs) -> None:
        """Append sampled tokens, hand on log-probabilities, and end what has stopped. For the task `generate`."""
        if result.prompt_logprobs:
            self._settle_prompts(step, alive, result, outputs)
        self._settle_tokens(step, alive, result, outputs)

    def end(self, row: int, outputs: Outputs, part: Any) -> None:
        """End the request of `row` with what its task made of it. For the task's `settle`."""
        self._finish_row(row, "stop", outputs, part=part)

    def _settle_plugins(
        self, settler: Settler, step: Step, alive: np.ndarray, result: StepResult, outputs: Outputs
    ) -> None:
        """Let a task that is a plugin settle a step; if it raises, what has not ended ends with its error."""
        task = self.scheduler.task
        try:
            task.settle(settler, step, alive, result, outputs)
        except Exception as error:
            said = f"CORE-P108 task '{task.name}': settle() raised {describe(error)}."
            logger.exception("step %d: %s", step.plan.number, said)
            for i in np.flatnonzero(self._alive(step)).tolist():
                self._finish_row(int(step.plan.rows[i]), "error", outputs, error=said)

    def take_started(self) -> list[Started]:
        """Return and clear the requests that were scheduled for the first time.

        How much of a prompt was cached is told when all that was promised of it has come.
        """
        first = self.scheduler.first_scheduled
        self.scheduler.first_scheduled = [request for request in first if request.needs or request.retold]
        told = [one for one in first if not (one.needs or one.retold)]
        now = time.monotonic() if told else 0.0
        return [Started(one.handle, one.cached_tokens, now - one.scheduled) for one in told]

    def take_refused(self) -> list[Finished]:
        """Return and clear the requests that a participant refused while they waited."""
        refused = self.scheduler.refused
        if not refused:
            return []
        self.scheduler.refused = []
        self.totals.finished["error"] += len(refused)
        return [Finished(one.handle, "error", None, one.error, one.param) for one in refused]

    # ---------------------------------------------------------------------------------------------------------------

    def _alive(self, step: Step) -> np.ndarray:
        alive: np.ndarray = self.scheduler.rows.epoch[step.rows] == step.epochs
        return alive

    def _count(self, step: Step, alive: np.ndarray) -> None:
        plan, totals = step.plan, self.totals
        totals.steps += 1
        totals.scheduled_tokens += plan.num_tokens
        rest = self.scheduler.rows.prompt[step.rows] - plan.starts
        in_prompt = np.flatnonzero(rest > 0)
        if len(in_prompt):
            counts = np.minimum(rest[in_prompt], plan.counts[in_prompt])
            totals.prompt_tokens += int(counts[alive[in_prompt]].sum())
        if not alive.all():
            totals.wasted_tokens += int(plan.counts[~alive].sum())

    def _fail_rows(self, step: Step, alive: np.ndarray, result: StepResult, outputs: Outputs) -> None:
        for index, error in result.errors.items():
            if alive[index]:
                row, table = int(step.plan.rows[index]), self.scheduler.rows
                failed = table.requests[row]
                if failed is not None:  # whatever it wrote must not be found by others
                    self.scheduler.cache.forget(failed, table.blocks(row))
                self._finish_row(row, "error", outputs, error=error)

    def _settle_prompts(self, step: Step, alive: np.ndarray, result: StepResult, outputs: Outputs) -> None:
        for index, scores in result.prompt_logprobs.items():
            if alive[index]:
                handle = int(self.scheduler.rows.handle[step.plan.rows[index]])
                outputs.prompt_logprobs[handle] = [_position(scores, i) for i in range(len(scores.ranks))]

    def _settle_tokens(self, step: Step, alive: np.ndarray, result: StepResult, outputs: Outputs) -> None:
        table = self.scheduler.rows
        found = gained(table, step.plan, step.rows, result, alive)
        settle_drafts(table, step.plan, result, alive)
        table.tokens[found.rows, found.lengths - 1] = found.tokens
        table.settled[found.rows] = found.lengths  # the last entry of a row counts
        refused: dict[int, str] = {}
        if self.scheduler.stages.settle:
            refused, dropped = self._tell(found)
            found = found.without(dropped)
        outputs.handles = table.handle[found.rows].tobytes()
        outputs.tokens = found.tokens.astype(np.int32, copy=False).tobytes()
        if result.logprobs:
            place = {int(index): i for i, index in enumerate(found.places)}
            outputs.logprobs = {
                place[index]: _position(scores, 0) for index, scores in result.logprobs.items() if index in place
            }
        self._end_rows(found, outputs)
        for row, error in refused.items():
            self._finish_row(row, "error", outputs, error=error)

    def _tell(self, found: Gained) -> tuple[dict[int, str], np.ndarray]:
        """Tell participants of settled tokens.

        Returns:
            Row -> error of those that must end, and which tokens follow a refused one of the same row, `(m,)` bool.
        """
        requests = [self.scheduler.rows.requests[row] for row in found.rows.tolist()]
        refused: dict[int, str] = {}
        marked = np.zeros(len(requests), bool)
        for settle in self.scheduler.stages.settle:
            for index, error in settle(requests, found.tokens).items():
                marked[index] = True
                refused.setdefault(int(found.rows[index]), error)
        return refused, behind(marked, found.rows) if refused else np.zeros_like(marked)

    def _end_rows(self, found: Gained, outputs: Outputs) -> None:
        table, rows, tokens = self.scheduler.rows, found.rows, found.tokens
        # The sampler holds stop ids back below a row's minimum, unless nothing else may follow.
        stopped = table.stopped(rows, tokens)
        for i in np.flatnonzero(stopped | (found.lengths >= table.limit[rows])).tolist():
            request = table.requests[rows[i]]
            token = int(tokens[i])
            if request is not None and stopped[i]:
                stop_id = token if token in request.params.stop_token_ids else None
                self._finish_row(int(rows[i]), "stop", outputs, stop_id=stop_id)
            else:
                self._finish_row(int(rows[i]), "length", outputs)

    def _finish_row(
        self,
        row: int,
        reason: Reason,
        outputs: Outputs,
        *,
        stop_id: int | None = None,
        error: str | None = None,
        part: Any = None,
    ) -> None:
        request: Request | None = self.scheduler.rows.requests[row]
        if request is None:
            return
        parts = {name: own for name, made in self.scheduler.stages.finished if (own := made(request)) is not None}
        if part is not None:
            parts[self.scheduler.task.name] = part
        outputs.finished.append(Finished(request.handle, reason, stop_id, error, parts=parts))
        self.totals.finished[reason] += 1
        self.scheduler.finish(request)


def _position(scores: TopLogprobs, i: int) -> Logprobs:
    return Logprobs(scores.ids[i].tolist(), scores.values[i].tolist(), int(scores.ranks[i]))
