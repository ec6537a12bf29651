"""Weights in four bits, rounded to the nearest, as AWQ, GPTQ and llama.cpp's Q4_K store them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

GROUP = 64
"""Inputs of a group: the customary 128 do not divide the demo model's width of 576."""

AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}
GPTQ = {
    "quant_method": "gptq",
    "bits": 4,
    "group_size": GROUP,
    "sym": True,
    "desc_act": False,
    "checkpoint_format": "gptq",
}

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_FED_ALONE = ("o_proj", "down_proj")


def awq(module: str, weight: Tensor, *, group_size: int = GROUP) -> dict[str, Tensor]:
    """Return what an AWQ checkpoint has of `weight (out, in)`."""
    groups = weight.float().unflatten(1, (-1, group_size))
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scales = ((high - low) / 15).clamp(min=1e-8).half()
    zeros = (-low / scales.float()).round().clamp(0, 15)
    codes = ((groups / scales.float().unsqueeze(-1)).round() + zeros.unsqueeze(-1)).clamp(0, 15).flatten(1)
    words = {"qweight": _words(codes.t(), _AWQ_ORDER), "qzeros": _words(zeros.t(), _AWQ_ORDER)}
    return {f"{module}.{name}": value for name, value in {**words, "scales": scales.t().contiguous()}.items()}


def gptq(module: str, weight: Tensor, *, group_size: int = GROUP, act_order: bool = False) -> dict[str, Tensor]:
    """Return what a symmetric GPTQ checkpoint has of `weight (out, in)`.

    Args:
        act_order: Groups are made of inputs in the order of their importance. That follows from what a layer is fed, so
            layers that are fed the same have one order, here a random one.
    """
    import torch

    inputs = weight.shape[1]
    order = torch.randperm(inputs, generator=_seeded(module)) if act_order else torch.arange(inputs)
    group = torch.empty(inputs, dtype=torch.int32)
    group[order] = torch.arange(inputs, dtype=torch.int32) // group_size
    scales = (weight.float()[:, order].unflatten(1, (-1, group_size)).abs().amax(-1) / 7.5).clamp(min=1e-8).half()
    codes = ((weight.float() / scales.float()[:, group]).round() + 8).clamp(0, 15)
    stored_zeros = torch.full_like(scales.t(), 7)  # one less than is meant
    words = {"qweight": _words(codes).t().contiguous(), "qzeros": _words(stored_zeros)}
    tensors = {**words, "scales": scales.t().contiguous(), "g_idx": group}
    return {f"{module}.{name}": value for name, value in tensors.items()}


def q4_k(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return `values (rows, columns)`, of 256 columns or a multiple, in blocks of Q4_K: `(rows, bytes)` uint8."""
    import numpy as np

    groups = values.astype(np.float32).reshape(len(values), -1, 8, 32)
    below = np.maximum(-groups.min(-1), 0)
    both = np.stack(((groups.max(-1) + below) / 15, below), -2)  # (rows, super-blocks, 2, 8)
    shared = (both.max(-1, keepdims=True) / 63).astype(np.float16)
    wide = shared.astype(np.float32)
    nested = np.rint(both / np.where(wide > 0, wide, 1)).clip(0, 63).astype(np.uint8)
    scale, minimum = np.moveaxis(wide * nested, 2, 0)[..., None]
    codes = np.rint((groups + minimum) / np.where(scale > 0, scale, 1)).clip(0, 15).astype(np.uint8)
    scales, minima = nested[..., 0, :], nested[..., 1, :]
    parts = [
        shared.view(np.uint8).reshape(*shared.shape[:2], 4),
        scales[..., :4] | (scales[..., 4:] >> 4 << 6),
        minima[..., :4] | (minima[..., 4:] >> 4 << 6),
        (scales[..., 4:] & 15) | (minima[..., 4:] << 4),
        (codes[..., ::2, :] | (codes[..., 1::2, :] << 4)).reshape(*codes.shape[:2], 128),
    ]
    blocks: np.ndarray[Any, Any] = np.concatenate(parts, -1)
    return blocks.reshape(len(values), -1)


def _words(codes: Tensor, order: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """Return `codes (rows, columns)` as words of eight columns, `order` naming the column of each nibble."""
    import torch

    words = torch.zeros(codes.shape[0], codes.shape[1] // 8, dtype=torch.int64)
    for nibble, column in enumerate(order):
        words |= codes[:, column::8].long() << 4 * nibble
    return words.to(torch.int32)


def _seeded(module: str) -> Any:
    import torch

    parent, _, name = module.rpartition(".")
    return torch.Generator().manual_seed(crc32((module if name in _FED_ALONE else parent).encode()))
