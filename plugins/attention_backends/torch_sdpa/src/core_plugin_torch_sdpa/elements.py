"""Elements of a cache: rounded when keys and values are stored, widened when they are read."""

from __future__ import annotations

import torch
from torch import Tensor

SCALE_BYTES = 4
"""int8: the float32 scale of a token's head lies behind its elements."""


def stored_dtype(kv_dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the cache tensor: bytes for float8, because hardly anything in torch computes with it."""
    return torch.uint8 if _is_float8(kv_dtype) else kv_dtype


def stored_size(head_dim: int, kv_dtype: torch.dtype) -> int:
    """Return how many elements of `stored_dtype` one head of a token takes."""
    return head_dim + SCALE_BYTES if kv_dtype == torch.int8 else head_dim


def encode(x: Tensor, kv_dtype: torch.dtype, scale: float | Tensor = 1.0) -> Tensor:
    """Return `x (..., heads, head_dim)` as it is stored, `(..., heads, stored_size)`.

    Values round to nearest even; those beyond the largest finite one become that. int8 has a scale for each head of a
    token, so that its largest value becomes 127; of the others float8 is divided before by `scale`: one number, or
    `(heads, 1)`.
    """
    if kv_dtype == torch.int8:
        scales = x.float().abs().amax(-1, keepdim=True) / 127
        codes = torch.round(x.float() / scales.masked_fill(scales == 0, 1)).nan_to_num().clamp(-127, 127)
        return torch.cat((codes.to(torch.int8), scales.view(torch.int8)), -1)
    if kv_dtype in (torch.float64, torch.float32, torch.bfloat16):
        return x.to(kv_dtype)
    most = torch.finfo(kv_dtype).max
    if not _is_float8(kv_dtype):
        return x.float().clamp(-most, most).to(kv_dtype)
    return (x.float() / scale).clamp(-most, most).to(kv_dtype).view(torch.uint8)


def decode(stored: Tensor, kv_dtype: torch.dtype, dtype: torch.dtype, scale: float | Tensor = 1.0) -> Tensor:
    """Return what `encode` made, `(..., stored_size)`, as values `(..., head_dim)` of `dtype`."""
    if kv_dtype == torch.int8:
        scales = stored[..., -SCALE_BYTES:].contiguous().view(torch.float32)
        return (stored[..., :-SCALE_BYTES].float() * scales).to(dtype)
    if not _is_float8(kv_dtype):
        return stored.to(dtype)
    values = stored.view(kv_dtype)
    if isinstance(scale, float) and scale == 1.0:
        return values.to(dtype)
    return (values.float() * scale).to(dtype)


def _is_float8(dtype: torch.dtype) -> bool:
    return dtype.itemsize == 1 and dtype.is_floating_point
