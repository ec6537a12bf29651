"""Platforms: the device runtime behind a handful of facets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

    from core.api.facets import CollectiveFacet, GraphFacet

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """Device memory.

    Attributes:
        total: Bytes of the device.
        free: Bytes that nobody uses right now.
        peak: Most bytes of the device that were in use at once since `Platform.mark_memory`; 0 where nobody counts.
    """

    total: int
    free: int
    peak: int = 0


class Pending(Protocol[T_co]):
    """Work that was submitted to a stream or a queue."""

    def result(self) -> T_co:
        """Wait for the work and return its value, or raise what it raised."""
        ...


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """A `Pending` whose work is done: `result` never waits.

    Attributes:
        value: What the work returned.
    """

    value: T

    def result(self) -> T:
        """Return the value."""
        return self.value


class Stream(Protocol):
    """An ordered queue of device work. Work submitted to one stream runs in order, one at a time."""

    def submit(self, work: Callable[[], T]) -> Pending[T]:
        """Queue `work` and return at once; what it returns or raises comes from `Pending.result`."""
        ...

    def close(self) -> None:
        """Wait for what was submitted and release the stream."""
        ...


class Queue(Protocol):
    """The device's own queue: torch operations are enqueued by the call and carried out later, in their order.

    It is used by one thread; what it returns may be waited for by another.
    """

    def pinned(self, size: int) -> Tensor:
        """Return `(size,)` int64 in host memory that the device reads by itself: copies from it do not wait.

        A copy reads it when its turn comes: it is written again only behind a `fence` that was set after the copy. It
        may be dropped once the copy is enqueued.
        """
        ...

    def fetch(self, tensors: Sequence[Tensor]) -> Pending[list[np.ndarray]]:
        """Enqueue copies of `tensors` to the host behind everything enqueued so far, and return at once.

        `result` waits for these copies only and returns arrays that belong to the caller, in the tensors' order.
        """
        ...

    def fence(self) -> Pending[None]:
        """Return a mark behind everything enqueued so far; `result` waits until the device has reached it."""
        ...


class Uploads(Protocol):
    """Brings weights into the device's memory through a few pinned areas of the host's.

    Used by several threads at once.
    """

    def upload(self, tensor: Tensor) -> Tensor:
        """Return a copy of a host tensor on the device. When it returns, `tensor` has been read."""
        ...

    def close(self) -> None:
        """Wait for what is under way, and give the areas back."""
        ...


class Platform(ABC):
    """Base of the runtimes of a `PlatformSpec`.

    Attributes:
        apart: The device has memory of its own: what the host writes is copied to it. False: both share one memory.
        graphs, collectives: Facets, see `core.api.facets`; None: it has none, and nothing asks again.
    """

    apart: bool = False
    graphs: GraphFacet | None = None
    collectives: CollectiveFacet | None = None

    def bind(self, where: str) -> None:  # noqa: B027 - nothing to choose on most devices
        """Choose the processors of this process, before `open`; `where` is the user's `threads_bind`."""

    @abstractmethod
    def open(self, *, threads: int | None, seed: int, index: int) -> torch.device:
        """Claim a device in this process: set it current, set thread counts, seed generators.

        Args:
            threads: Compute threads of the host; None leaves them to the platform.
            index: Which of the platform's devices, from 0.
        """

    @abstractmethod
    def memory(self) -> MemorySnapshot:
        """Return the device's memory as it is now; asked after `open`."""

    def mark_memory(self) -> None:  # noqa: B027 - where memory is shared nobody counts
        """Begin to count `MemorySnapshot.peak` anew, from what is in use now. Called where the device is `apart`."""

    def release_memory(self) -> None:  # noqa: B027 - many allocators keep nothing
        """Give back what the allocator keeps of memory that is no longer used. Called when a step ran out of memory."""

    @abstractmethod
    def stream(self) -> Stream:
        """Return a new stream; on a device without streams, a thread that runs work in order."""

    def queue(self) -> Queue | None:
        """Return the queue behind torch operations; None: an operation is done when its call returns.

        Asked once, after `open`.
        """
        return None

    def uploads(self) -> Uploads | None:
        """Return what brings weights to the device; None: torch copies them one after the other.

        Asked once for each time that a checkpoint is loaded, after `open`.
        """
        return None

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """Return facts for the start-up table, for example `{"device": "...", "threads": "2"}`."""

    @abstractmethod
    def close(self) -> None:
        """Release the device; nothing is asked afterwards."""
