"""Norms; forms as in `core.ops.norm`."""

from __future__ import annotations

import torch
from torch import Tensor

from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.kernels.norm import norm
from core_plugin_kernels_triton.ops.layout import rows_apart
from core_plugin_kernels_triton.ops.tiles import power_of_two, tiles, tiling


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return `x / sqrt(mean(x^2) + eps) * weight` over the last dimension."""
    return _normed(x, None, weight, None, eps, centered=False)[0]


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return `(rms_norm(x + residual), x + residual)`."""
    return _normed(x, residual, weight, None, eps, centered=False)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Return `(x - mean) / sqrt(var + eps) * weight + bias` over the last dimension."""
    return _normed(x, None, weight, bias, eps, centered=True)[0]


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Return `(layer_norm(x + residual), x + residual)`."""
    return _normed(x, residual, weight, bias, eps, centered=True)


def _normed(
    x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor | None, eps: float, *, centered: bool
) -> tuple[Tensor, Tensor]:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = out if residual is None else torch.empty_like(out)
    if x.numel():
        launch_norm(x, residual, weight, bias, out, total, eps, centered)
    return out, total


@launch(
    "Tensor x, Tensor? residual, Tensor weight, Tensor? bias, Tensor(a!) out, Tensor(b!) total, float eps, "
    "bool centered"
)
def launch_norm(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    out: Tensor,
    total: Tensor,
    eps: float,
    centered: bool,
) -> None:
    """Write the norm to `out`, and the sum with `residual`, if there is one, to `total`."""
    size = x.shape[-1]
    rows = x.numel() // size
    x, stride = rows_apart(x)
    residual, residual_stride = (None, 0) if residual is None else rows_apart(residual)
    heads = x[0].numel() // size if x.dim() > 1 else 1
    table = tiles(x.device)["norm"]
    tile = tiling(size, {**table, "tile": max(table["tile"], power_of_two(size))})  # rows in one piece
    norm[(tile.programs(rows),)](
        *(x, residual, weight, bias, out, total, eps, rows, heads, size, stride, residual_stride),
        CENTERED=centered,
        ADDED=residual is not None,
        BIASED=bias is not None,
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
