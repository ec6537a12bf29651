"""Device module of the fake device (`torch.get_device_module`): streams, events, graphs and memory of CPU tensors.

It is late as the rest of the fake device: what a thread enqueues on the current stream is carried out when somebody
waits for an event behind it, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from core_testing.fakedevice.deferred import Deferred, Reads, Shapes, Work
from core_testing.fakedevice.graphs import refuse
from core_testing.fakedevice.queue import LateQueue

TOTAL = 2**30
"""Bytes of a fake device."""


class FakeModule:
    """A device module, which counts what a step must not do.

    Args:
        devices: How many devices there are.
        total: Bytes of each.

    Attributes:
        queue: The work; its `waits` are those for numbers that the host reads (`item`, `cpu`, `tolist`).
        synchronized: Calls of `synchronize`, which wait for the whole device.
        events: Events that somebody waited for.
        captured, replayed: Graphs, and their replays.
        emptied: Calls of `empty_cache`.
        free, allocated, reserved, peak: Bytes, as the calls of the same names tell them; to be set by tests.
    """

    def __init__(self, devices: int = 1, total: int = TOTAL) -> None:
        self.queue = LateQueue()
        self.synchronized = self.events = self.captured = self.replayed = self.emptied = 0
        self.total = self.free = total
        self.allocated = self.reserved = self.peak = 0
        self._devices, self._index = devices, 0
        self._shapes = Shapes()
        self._main = FakeStream(self)
        self.Stream: Callable[..., FakeStream] = partial(FakeStream, self)
        self.Event: Callable[[], FakeEvent] = partial(FakeEvent, self)
        self.CUDAGraph: Callable[[], FakeGraph] = partial(FakeGraph, self)

    # -- devices ---------------------------------------------------------------------------------------------------

    def device_count(self) -> int:
        """Return how many devices there are."""
        return self._devices

    def set_device(self, index: int) -> None:
        """Make a device current. Raises `RuntimeError` if there is none."""
        if index >= self._devices:
            raise RuntimeError(f"invalid device ordinal {index}")
        self._index = index

    def current_device(self) -> int:
        """Return the current device."""
        return self._index

    def get_device_name(self, index: int) -> str:
        """Return what a device is called."""
        return f"fake device {index}"

    # -- streams ---------------------------------------------------------------------------------------------------

    def current_stream(self, device: object = None) -> FakeStream:
        """Return the one stream that is late."""
        return self._main

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        """Have this thread's work go to a stream; on any but the current one it is done at once."""
        queue = self.queue
        if stream is not self._main or queue.late:
            yield
            return
        with queue.regime(), Reads(queue.wait), Deferred(queue.enqueue, queue.wait, self._shapes):
            yield

    def synchronize(self, device: object = None) -> None:
        """Wait for the whole device."""
        self.synchronized += 1
        self.queue.finish()

    # -- memory ----------------------------------------------------------------------------------------------------

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        """Return free bytes and all of them, as the driver tells them."""
        return self.free, self.total

    def memory_allocated(self, device: object = None) -> int:
        """Return the bytes of all tensors."""
        return self.allocated

    def memory_reserved(self, device: object = None) -> int:
        """Return the bytes that the allocator has of the driver."""
        return self.reserved

    def max_memory_allocated(self, device: object = None) -> int:
        """Return the most bytes of tensors at once."""
        return self.peak

    def reset_peak_memory_stats(self, device: object = None) -> None:
        """Pretend that from here on a quarter is used."""
        self.peak = self.total // 4

    def empty_cache(self) -> None:
        """Give memory back."""
        self.emptied += 1
        self.free += self.reserved - self.allocated
        self.reserved = self.allocated

    # -- graphs ----------------------------------------------------------------------------------------------------

    def graph_pool_handle(self) -> tuple[int, int]:
        """Return a new pool of memory for graphs."""
        return (0, self.captured + 1)

    @contextmanager
    def graph(
        self, graph: FakeGraph, pool: object = None, stream: object = None, capture_error_mode: str = "global"
    ) -> Iterator[None]:
        """Record what this thread does; nothing of it is carried out."""
        self.captured += 1
        graph.pool = pool
        with Deferred(graph.work.append, refuse, Shapes()):
            yield


class FakeStream:
    """A stream; work on any but the module's current one is done at once."""

    def __init__(self, module: FakeModule, device: object = None) -> None:
        self._module = module

    def wait_stream(self, other: FakeStream) -> None:
        """Have work that comes now run behind that of another stream."""
        self._module.queue.finish()


class FakeEvent:
    """A mark behind the work that was enqueued when it was recorded."""

    def __init__(self, module: FakeModule) -> None:
        self._module = module
        self._mark: Any = None

    def record(self, stream: FakeStream | None = None) -> None:
        """Set the mark."""
        self._mark = self._module.queue.fence()

    def synchronize(self) -> None:
        """Wait for the work before the mark."""
        self._module.events += 1
        self._mark.result()


class FakeGraph:
    """Recorded work.

    Attributes:
        pool: The pool that it was captured with.
    """

    def __init__(self, module: FakeModule) -> None:
        self._module = module
        self.pool: object = None
        self.work: list[Work] = []

    def replay(self) -> None:
        """Enqueue the work."""
        self._module.replayed += 1
        work = self.work
        self._module.queue.enqueue(lambda: [one() for one in work])
