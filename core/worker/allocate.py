"""Zeroed memory for tables that are large and mostly unused."""

from __future__ import annotations

import math
import mmap

import torch
from torch import Tensor


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, *, apart: bool = False) -> Tensor:
    """Return a zeroed tensor; in host memory it begins at a page, and pages are committed when they are first written.

    Args:
        apart: The device has memory of its own.

    `torch.zeros` writes every page at once: seconds and gigabytes for a KV cache that few requests will ever fill. So
    may `numpy.zeros` where memory is used again that was freed before, and it asks for huge pages: of a KV cache, whose
    layers are apart, the first request would commit 2 MiB a layer.
    """
    if apart:
        return torch.zeros(shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    pages = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=torch.uint8)[:size].view(dtype).view(shape)
