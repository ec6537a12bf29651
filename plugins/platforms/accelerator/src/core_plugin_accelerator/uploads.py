"""Weights on their way to the device, through a few pinned areas."""

from __future__ import annotations

import threading
from queue import LifoQueue
from typing import Any, NamedTuple

import torch
from torch import Tensor

from core_plugin_accelerator.faults import device_faults
from core_plugin_accelerator.host import pinned

AREAS = 2
"""While the device reads one area the next is written."""

AREA_BYTES = 64 * 2**20
"""Bytes of one; what is larger goes in pieces."""


class _Area(NamedTuple):
    memory: Tensor
    event: Any = None  # behind the copy that reads it


class PinnedUploads:
    """A `core.api.Uploads`: pieces of a tensor are copied into an area, from which the device takes them by itself.

    The host holds the areas and nothing else of what is on its way; none is larger than the largest piece.

    Attributes:
        peak: Most bytes of areas at once.
    """

    def __init__(self, module: Any, device: torch.device, areas: int = AREAS, area_bytes: int = AREA_BYTES) -> None:
        self._module, self._device, self._size = module, device, area_bytes
        self._areas: LifoQueue[_Area] = LifoQueue()
        for _ in range(areas):
            self._areas.put(_Area(torch.empty(0, dtype=torch.uint8)))
        self._count, self._held, self._lock = areas, 0, threading.Lock()
        self.peak = 0

    def upload(self, tensor: Tensor) -> Tensor:
        """Return a copy of a host tensor on the device."""
        there = torch.empty(tensor.shape, dtype=tensor.dtype, device=self._device)
        source, target = (one.reshape(-1).view(torch.uint8) for one in (tensor.contiguous(), there))
        for begin in range(0, len(source), self._size):
            self._pass(source[begin : begin + self._size], target[begin : begin + self._size])
        return there

    def close(self) -> None:
        """Wait for the copies, and give the areas back."""
        for _ in range(self._count):
            area = self._areas.get()
            if area.event is not None:
                area.event.synchronize()
        self._count = 0

    def _pass(self, source: Tensor, target: Tensor) -> None:
        area, done = self._areas.get(), False
        memory = area.memory
        try:
            with device_faults():
                if area.event is not None:
                    area.event.synchronize()
                memory = self._fitting(memory, len(source))
                memory[: len(source)].copy_(source)
                target.copy_(memory[: len(source)], non_blocking=True)
                event = self._module.Event()
                event.record(self._module.current_stream(self._device))
            done = True
        finally:
            self._areas.put(_Area(memory, event) if done else _Area(memory))

    def _fitting(self, memory: Tensor, size: int) -> Tensor:
        """Return an area that holds so many bytes: the one given, or a larger one in its place."""
        if len(memory) >= size:
            return memory
        larger = pinned((size,), torch.uint8, self._device)
        with self._lock:
            self._held += size - len(memory)
            self.peak = max(self.peak, self._held)
        return larger
