"""Platforms: the device runtime behind a handful of facets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """Device memory.

    Attributes:
        total: Bytes of the device.
        free: Bytes that nobody uses right now.
    """

    total: int
    free: int


class Pending(Protocol[T_co]):
    """Work that was submitted to a stream."""

    def result(self) -> T_co:
        """Wait for the work and return its value, or raise what it raised."""
        ...


class Stream(Protocol):
    """An ordered queue of device work. Work submitted to one stream runs in order, one at a time."""

    def submit(self, work: Callable[[], T]) -> Pending[T]:
        """Queue `work` and return at once; what it returns or raises comes from `Pending.result`."""
        ...

    def close(self) -> None:
        """Wait for what was submitted and release the stream."""
        ...


class Platform(Protocol):
    """Runtime of a `PlatformSpec`.

    A platform may also have the attributes `graphs` and `collectives`, see `core.api.facets`, and a method
    `bind(where: str)`, called before `open` with the user's `threads_bind`.
    """

    def open(self, *, threads: int | None, seed: int) -> torch.device:
        """Claim the device in this process: set it current, set thread counts, seed generators."""
        ...

    def memory(self) -> MemorySnapshot:
        """Return the device's memory as it is now; asked after `open`."""
        ...

    def stream(self) -> Stream:
        """Return a new stream; on a device without streams, a thread that runs work in order."""
        ...

    def describe(self) -> dict[str, str]:
        """Return facts for the start-up table, for example `{"device": "...", "threads": "2"}`."""
        ...

    def close(self) -> None:
        """Release the device; nothing is asked afterwards."""
        ...
