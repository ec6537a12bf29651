"""Zeroed memory for tables that are large and mostly unused."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register."""


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a zeroed tensor; in host memory its pages are committed when they are first written.

    `torch.zeros` writes every page at once: seconds and gigabytes for a KV cache that few requests will ever fill.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + ALIGNMENT, dtype=np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return torch.from_numpy(memory[begin : begin + size]).view(dtype).view(shape)
