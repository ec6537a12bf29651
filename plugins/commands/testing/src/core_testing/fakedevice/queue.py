"""The fake device's queue: work is carried out when somebody waits for it, and not before."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

T = TypeVar("T")


class LateQueue:
    """A `core.api.Queue` that carries out what was enqueued at the last legal moment, in its order.

    Attributes:
        waits: How often the host waited for the device, but for fences and fetched results.
    """

    def __init__(self) -> None:
        self.waits = 0
        self._work: deque[Callable[[], object]] = deque()
        self._lock = threading.RLock()
        self._enqueued = self._done = 0
        self._regime = threading.local()

    @property
    def late(self) -> bool:
        """Whether the work of this thread is enqueued; elsewhere, as while an engine starts, it is done at once."""
        return getattr(self._regime, "late", False)

    @contextmanager
    def regime(self) -> Iterator[None]:
        """Enqueue the work of this thread."""
        self._regime.late = True
        try:
            yield
        finally:
            self._regime.late = False

    def enqueue(self, work: Callable[[], object]) -> int:
        """Put work behind all other; return its number."""
        with self._lock:
            self._work.append(work)
            self._enqueued += 1
            if not self.late:
                self.reach(self._enqueued)
            return self._enqueued

    def reach(self, number: int) -> None:
        """Carry out everything up to the work of this number. Raises what it raises."""
        with self._lock, _disable_current_modes(), torch.inference_mode():
            while self._done < number:
                self._done += 1
                self._work.popleft()()

    def wait(self) -> None:
        """Carry out everything, because the host cannot go on without."""
        self.waits += 1
        self.finish()

    def finish(self) -> None:
        """Carry out everything, without counting it: the device is waited for on purpose."""
        with self._lock:
            self.reach(self._enqueued)

    def pinned(self, size: int) -> Tensor:
        """Return host memory; what is copied from it is read when the copy's turn comes."""
        return torch.empty(size, dtype=torch.int64)

    def fetch(self, tensors: Sequence[Tensor]) -> Mark[list[np.ndarray]]:
        """Enqueue copies to the host."""
        arrays: list[np.ndarray] = []
        number = self.enqueue(lambda: arrays.extend(tensor.clone().numpy() for tensor in tensors))
        return Mark(self, number, arrays)

    def fence(self) -> Mark[None]:
        """Return a mark behind everything enqueued so far."""
        with self._lock:
            return Mark(self, self._enqueued, None)


class Mark(Generic[T]):
    """A `Pending` of the queue."""

    def __init__(self, queue: LateQueue, number: int, value: T) -> None:
        self._queue, self._number, self._value = queue, number, value

    def result(self) -> T:
        """Carry out what comes before, and return the value."""
        self._queue.reach(self._number)
        return self._value
