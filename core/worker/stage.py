"""Staging memory: a step's index data is written on the host and reaches the device with one copy."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def is_apart(device: torch.device) -> bool:
    """Whether the device has memory of its own, so that what the host writes must be copied."""
    return device.type != "cpu"


class Stage:
    """One piece of int64 memory, cut into sections anew whenever a step has another size.

    On a host platform the device's tensors are the host's arrays. Elsewhere the host's memory is pinned and `flush`
    copies it; a step must have ended before the next one is staged.

    Attributes:
        host: The sections, to be written.
        tensors: The same on the device.
    """

    def __init__(self, device: torch.device) -> None:
        self._apart = is_apart(device)
        self._device = device
        self._memory = self._onboard = torch.empty(0, dtype=torch.int64)
        self._sizes: tuple[int, ...] = ()
        self.host: list[np.ndarray] = []
        self.tensors: tuple[Tensor, ...] = ()

    def lay_out(self, *sizes: int) -> None:
        """Have one section of each size. What sections hold is lost."""
        if sizes != self._sizes:
            self._cut(sizes)

    def flush(self) -> None:
        """Bring what was written to the device."""
        if self._apart:
            total = sum(self._sizes)
            self._onboard[:total].copy_(self._memory[:total], non_blocking=True)

    def _cut(self, sizes: tuple[int, ...]) -> None:
        total = sum(sizes)
        if total > len(self._memory):
            self._grow(1 << (total - 1).bit_length())
        self._sizes = sizes
        self.host = np.split(self._memory.numpy()[:total], np.cumsum(sizes)[:-1])
        self.tensors = torch.split_with_sizes(self._onboard[:total], sizes)

    def _grow(self, size: int) -> None:
        # Ordinary tensors: what the first step makes under inference mode would be closed to any other reader.
        with torch.inference_mode(False):
            pinned = self._apart and torch.accelerator.is_available()
            self._memory = torch.empty(size, dtype=torch.int64, pin_memory=pinned)
            self._onboard = torch.empty(size, dtype=torch.int64, device=self._device) if self._apart else self._memory
