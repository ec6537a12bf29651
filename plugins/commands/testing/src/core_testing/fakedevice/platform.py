"""The fake device's runtime."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

from core.api.errors import EngineError
from core.api.platform import MemorySnapshot, Platform
from core_testing.fakedevice.deferred import Deferred, Reads, Shapes
from core_testing.fakedevice.graphs import RecordingGraphs
from core_testing.fakedevice.queue import LateQueue

T = TypeVar("T")

TOTAL = 2**30
"""Bytes of the device."""


class FakeStream:
    """A thread whose torch operations go to the queue."""

    def __init__(self, queue: LateQueue) -> None:
        self._queue, self._shapes = queue, Shapes()
        self._pool = ThreadPoolExecutor(1, "fake-stream", initializer=torch.set_num_threads, initargs=(1,))

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` on the thread."""
        try:
            return self._pool.submit(self._run, work)
        except RuntimeError as error:
            raise EngineError("CORE-E125", f"The fake device's stream takes no more work: {error}.") from error

    def close(self) -> None:
        """Wait for what runs, drop the rest. May be called again."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, work: Callable[[], T]) -> T:
        queue = self._queue
        with (
            torch.inference_mode(),
            queue.regime(),
            Reads(queue.wait),
            Deferred(queue.enqueue, queue.wait, self._shapes),
        ):
            return work()


class FakePlatform(Platform):
    """CPU tensors as a device with memory of its own."""

    apart = True
    graphs: RecordingGraphs

    def __init__(self) -> None:
        self._queue = LateQueue()
        self.graphs = RecordingGraphs(self._queue)
        self._streams: list[FakeStream] = []
        self._peak = 0

    def open(self, *, threads: int | None, seed: int, index: int) -> torch.device:
        """Seed the generators."""
        torch.manual_seed(seed)
        return torch.device("cpu")

    def memory(self) -> MemorySnapshot:
        """Return memory of which a quarter was in use at once."""
        return MemorySnapshot(TOTAL, TOTAL, self._peak)

    def mark_memory(self) -> None:
        """Pretend that from here on a quarter is used."""
        self._peak = TOTAL // 4

    def stream(self) -> FakeStream:
        """Return a new thread."""
        self._streams.append(FakeStream(self._queue))
        return self._streams[-1]

    def queue(self) -> LateQueue:
        """Return the queue."""
        return self._queue

    def describe(self) -> dict[str, str]:
        """Return facts for the start-up table."""
        return {"device": "a fake one"}

    def close(self) -> None:
        """Close the streams. May be called again."""
        while self._streams:
            self._streams.pop().close()
