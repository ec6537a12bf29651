"""The engine's loop: launch ahead, settle behind.

    admit -> place -> plan -> launch            (scheduler, then executor)
                               collect -> settle   (the oldest step in flight)

With overlap depth 0 a step is settled before the next is scheduled; with depth d, up to d steps run or wait behind the
one being settled. It is the same loop: depth only bounds how many steps may be in flight.

What is launched ahead is decided before its time, and whoever arrives in between has to wait for it. Who can do
something else meanwhile therefore asks for how long the launch may wait (`launch_wait`).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

from core.api.errors import DEVICE_LOST, OUT_OF_MEMORY, CoreError, EngineError, PluginError
from core.api.executors import Executor
from core.api.platform import Pending
from core.api.runners import Timer
from core.api.steps import StepResult
from core.engine.loop_timing import StepTimes
from core.engine.messages import Outputs
from core.engine.profile import untimed
from core.engine.scheduler import Scheduler, Step
from core.engine.settle import Settler

logger = logging.getLogger(__name__)


class _FailedLaunch:
    """Stands in for a step that could not even be submitted; it fails when it is settled, in its turn."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def result(self) -> StepResult:
        raise self._error


class _Spoiled:
    """A step that runs without its late parts; when it is done it fails with the reason."""

    def __init__(self, pending: Pending[StepResult], error: Exception) -> None:
        self._pending, self._error = pending, error

    def result(self) -> StepResult:
        self._pending.result()
        raise self._error


class EngineLoop:
    """Drives one scheduler and one executor.

    Args:
        depth: Steps launched ahead of the one being settled.
        clock: Seconds, for the lengths of steps.

    Attributes:
        paused: No step is launched; requests stay as they are.
        working: A step is being launched or waited for.
    """

    def __init__(
        self, scheduler: Scheduler, executor: Executor, depth: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.scheduler, self.executor, self.depth = scheduler, executor, depth
        self._clock = clock
        self._times = StepTimes()
        self._began = 0.0  # the oldest step in flight
        self.paused = self.working = False
        self.settler = Settler(scheduler)
        self._inflight: deque[tuple[Step, Pending[StepResult]]] = deque()
        self.time(untimed)

    def time(self, timer: Timer) -> None:
        """Have the engine's phases of every step timed, or no longer (`untimed`)."""
        self._choose = timer("schedule", self.scheduler.schedule)
        self._submit = timer("launch", self.executor.launch)
        self._wait = timer("wait", _result)
        self._account = timer("settle", self.settler.settle)

    @property
    def busy(self) -> bool:
        """Whether `advance` has anything to do."""
        return bool(self._inflight) or (self.scheduler.has_work and not self.paused)

    @property
    def inflight(self) -> int:
        """Steps that were launched and not settled yet."""
        return len(self._inflight)

    def launch_wait(self) -> float:
        """Return for how many seconds `advance` can wait without a worker waiting for it; 0 when it is due.

        Nothing waits but the last step that may be launched ahead: until the oldest in flight is about to end.
        """
        if not self._inflight or len(self._inflight) != self.depth:
            return 0.0
        oldest, _ = self._inflight[0]
        return max(0.0, self._began + self._times.certain(oldest.plan.num_tokens) - self._clock())

    def advance(self) -> Outputs | None:
        """Launch at most one step and settle at most one; return the settled step's outputs.

        Blocks until the oldest step is done only when no more may be launched or nothing else can be scheduled.
        """
        launched = len(self._inflight) <= self.depth and self._launch()
        if self._inflight and not (launched and len(self._inflight) <= self.depth):
            return self._settle()
        return Outputs(finished=self.settler.take_refused()) if self.scheduler.refused else None

    def drain(self) -> list[Outputs]:
        """Settle everything in flight without launching more."""
        outputs = []
        while self._inflight:
            outputs.append(self._settle())
        return outputs

    def _launch(self) -> bool:
        step = None if self.paused else self._choose()
        if step is None:
            return False
        self.working = True
        try:
            unfit = self.scheduler.stages.take_unfit()
            pending = self._submit(step.plan) if unfit is None else _FailedLaunch(unfit)
        except Exception as error:
            pending = _FailedLaunch(error)
        self.working = False
        self._inflight.append((step, pending))
        if len(self._inflight) == 1:
            self._began = self._clock()
            self._send_late()
        return True

    def _send_late(self) -> None:
        """Send the oldest step in flight its late parts: all steps before it have settled."""
        if self._inflight:
            step, pending = self._inflight[0]
            if step.plan.late and not isinstance(pending, _FailedLaunch):
                alive = self.scheduler.rows.epoch[step.rows] == step.epochs
                try:
                    self.executor.late(step.plan.number, self.scheduler.stages.late(step.plan, alive))
                except Exception as error:
                    # The worker waits for them. What it samples without them means nothing.
                    self.executor.late(step.plan.number, {})
                    self._inflight[0] = step, _Spoiled(pending, error)

    def _settle(self) -> Outputs:
        outputs = self._settle_oldest()
        self._send_late()
        return outputs

    def _settle_oldest(self) -> Outputs:
        step, pending = self._inflight.popleft()
        self.working = True
        try:
            result = self._wait(pending)
        except Exception as error:
            self.working = False
            self._began = self._clock()
            return self._step_failed(step, error)
        self.working = False
        ended = self._clock()
        seconds, self._began = ended - self._began, ended
        self._times.note(step.plan.num_tokens, seconds)
        if (latency := self.scheduler.latency) is not None:
            latency.note(step.plan, result, seconds)
        return self._account(step, result)

    def _step_failed(self, step: Step, error: Exception) -> Outputs:
        """Fail the requests of a broken step and go on, unless the executor or its device is gone."""
        if not self.executor.healthy() or getattr(error, "code", "") == DEVICE_LOST:
            raise error if isinstance(error, EngineError) else EngineError("CORE-E113", f"a worker is gone: {error}")
        logger.error("step %d failed; its requests end with an error", step.plan.number, exc_info=error)
        return self.settler.fail(step, _named(error))


def _named(error: Exception) -> str:
    """Return what the requests of a step that failed are told."""
    if isinstance(error, PluginError) or (isinstance(error, CoreError) and error.code == OUT_OF_MEMORY):
        return f"{error.code} {error.message}"
    return f"{type(error).__name__} in the forward pass"


def _result(pending: Pending[StepResult]) -> StepResult:
    return pending.result()
