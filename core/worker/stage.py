"""Staging memory: a step's index data is written on the host and reaches the device with one copy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from core.api.platform import Pending
    from core.worker.transfers import Transfers


@dataclass(slots=True)
class _Area:
    """Host memory of one step; `fence` is behind the last copy from it."""

    memory: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    sizes: tuple[int, ...] = ()
    sections: list[np.ndarray] = field(default_factory=list)
    fence: Pending[None] | None = None


class Stage:
    """A ring of pieces of int64 memory, each cut into sections anew whenever a step has another size.

    On a host platform there is one, and the device's tensors are the host's arrays. Elsewhere `flush` copies the one
    that was written last, and the next step is written into the next of the ring: the device may read them long after.
    One is written again only behind its fence; on the device a single piece is enough, as copies and steps keep order.

    Attributes:
        host: The sections, to be written.
        tensors: The same on the device.
    """

    def __init__(self, transfers: Transfers) -> None:
        self._transfers = transfers
        self._areas = [_Area() for _ in range(transfers.areas)]
        self._current = 0
        self._onboard = self._areas[0].memory
        self._sizes: tuple[int, ...] = ()
        self.host: list[np.ndarray] = []
        self.tensors: tuple[Tensor, ...] = ()

    def lay_out(self, *sizes: int) -> None:
        """Have one section of each size. What sections hold is lost."""
        if self._transfers.apart:
            self._next(sizes)
        elif sizes != self._sizes:
            area = self._areas[0]
            self._cut(area, sizes)
            self._onboard, self.host = area.memory, area.sections
            self._split(sizes)

    def flush(self) -> None:
        """Bring what was written to the device."""
        if self._transfers.apart:
            area, total = self._areas[self._current], sum(self._sizes)
            self._onboard[:total].copy_(area.memory[:total], non_blocking=True)
            area.fence = None if self._transfers.queue is None else self._transfers.queue.fence()

    def _next(self, sizes: tuple[int, ...]) -> None:
        """Take the next area of the ring, once the device has read what is there."""
        self._current = (self._current + 1) % len(self._areas)
        area = self._areas[self._current]
        if area.fence is not None:
            area.fence.result()
        if sizes != area.sizes:
            self._cut(area, sizes)
        self.host = area.sections
        if len(self._onboard) < len(area.memory):
            with torch.inference_mode(False):
                self._onboard = torch.empty_like(area.memory, device=self._transfers.device)
            self._sizes = ()
        if sizes != self._sizes:
            self._split(sizes)

    def _cut(self, area: _Area, sizes: tuple[int, ...]) -> None:
        total = sum(sizes)
        if total > len(area.memory):
            area.memory = self._transfers.pinned(1 << (total - 1).bit_length())
        area.sizes = sizes
        area.sections = np.split(area.memory.numpy()[:total], np.cumsum(sizes)[:-1])

    def _split(self, sizes: tuple[int, ...]) -> None:
        self._sizes = sizes
        self.tensors = torch.split_with_sizes(self._onboard[: sum(sizes)], sizes)


def int32_section(count: int) -> int:
    """Return the size of a section that holds `count` int32 numbers."""
    return (count + 1) // 2
