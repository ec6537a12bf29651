"""How arguments lie in memory: rows that are a stride apart, each contiguous in itself."""

from __future__ import annotations

from torch import Tensor


def rows_apart(x: Tensor) -> tuple[Tensor, int]:
    """Return a tensor whose rows (everything behind its first dimension) are contiguous, and their stride.

    What has other gaps than those between rows is copied.
    """
    if x.is_contiguous() or not x[:1].is_contiguous():
        x = x.contiguous()
    return x, x.stride(0) if x.dim() > 1 else 1
