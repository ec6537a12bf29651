"""Host memory that a device reads and writes by itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def pinned(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return pinned memory; torch keeps what is given back, so that asking again costs little.

    A device that stands in with CPU tensors reads any memory.
    """
    return torch.empty(tuple(shape), dtype=dtype, pin_memory=device.type != "cpu")
