"""The worker in this process: a step is submitted to the platform's stream, nothing is copied or encoded."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from core.api import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core.api import ExecutorSetup, Pending, StepPlan, StepResult, Stream, Worker, WorkerInfo

LATE_SECONDS = 300.0
"""A step that waits longer for its late parts fails: whoever makes them is gone."""


class Launched:
    """A step on the stream: what waits for it waits until it has begun, and then for the device."""

    __slots__ = ("_begun",)

    def __init__(self, begun: Pending[Pending[StepResult]]) -> None:
        self._begun = begun

    def result(self) -> StepResult:
        """Return the step's result, or raise what it raised."""
        return self._begun.result().result()


class InprocExecutor:
    """One worker on a stream of this process."""

    def __init__(self, setup: ExecutorSetup) -> None:
        self._setup = setup
        self._worker: Worker | None = None
        self._stream: Stream | None = None
        self._awaited: dict[int, Future[Mapping[str, Any]]] = {}  # by step

    def start(self) -> WorkerInfo:
        """Start the worker in the calling thread. Raises what the worker raised, after closing it."""
        worker = self._setup.opener.open(self._setup.on_progress)
        try:
            info = worker.start()
            self._stream = worker.stream()
        except BaseException:
            worker.close()
            raise
        self._worker = worker
        return info

    def launch(self, plan: StepPlan) -> Pending[StepResult]:
        """Submit a step to the stream and return at once."""
        worker, stream = self._running()
        if not plan.late:
            return Launched(stream.submit(partial(worker.begin, plan)))
        awaited = self._awaited[plan.number] = Future()
        return Launched(stream.submit(partial(worker.begin, plan, partial(awaited.result, LATE_SECONDS))))

    def late(self, number: int, parts: Mapping[str, Any]) -> None:
        """Give a step the late parts that it waits for."""
        self._awaited.pop(number).set_result(parts)

    def call(self, method: str, *args: Any) -> Any:
        """Call a worker method on the stream, after every step launched so far."""
        worker, stream = self._running()
        return stream.submit(partial(worker.call, method, *args)).result()

    def healthy(self) -> bool:
        """Whether the worker is started and not closed: it shares this process's fate."""
        return self._stream is not None

    def close(self) -> None:
        """Finish the steps on the stream, then close the worker. Closing twice is harmless."""
        stream, self._stream = self._stream, None
        worker, self._worker = self._worker, None
        while self._awaited:  # nobody makes them any more, and the stream ends with its last step
            self._awaited.popitem()[1].cancel()
        if stream is not None:
            stream.close()
        if worker is not None:
            worker.close()

    def _running(self) -> tuple[Worker, Stream]:
        if self._worker is None or self._stream is None:
            raise EngineError("CORE-E133", "The inproc executor has no running worker: it is not started, or closed.")
        return self._worker, self._stream
