"""The memory of a device: what is free, and what was in use at once."""

from __future__ import annotations

from typing import Any

import torch

from core.api.platform import MemorySnapshot


class DeviceMemory:
    """Memory as the driver and torch's allocator tell it.

    What other processes, the driver's context and libraries have counts as used. What the allocator keeps without using
    it counts as free.

    Args:
        reserve: Bytes that are left to the driver, and count as used.
    """

    def __init__(self, module: Any, device: torch.device, reserve: int = 0) -> None:
        self._module, self._device, self._reserve = module, device, reserve
        self._marked = False

    def snapshot(self) -> MemorySnapshot:
        """Return the memory as it is now; the peak since `mark`."""
        module, device = self._module, self._device
        free, total = module.mem_get_info(device)
        reserved = module.memory_reserved(device)
        idle = reserved - module.memory_allocated(device)
        outside = total - free - reserved + self._reserve
        peak = min(total, outside + module.max_memory_allocated(device)) if self._marked else 0
        return MemorySnapshot(total, max(0, free + idle - self._reserve), peak)

    def mark(self) -> None:
        """Count the peak anew."""
        self._module.reset_peak_memory_stats(self._device)
        self._marked = True

    def release(self) -> None:
        """Give back to the driver what the allocator keeps."""
        self._module.empty_cache()
