"""Activations; forms as in `core.ops.activation`."""

from __future__ import annotations

import torch
from torch import Tensor

from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.kernels.activation import GELU, GELU_TANH, SILU, activate
from core_plugin_kernels_triton.ops.layout import rows_apart
from core_plugin_kernels_triton.ops.tiles import tiles, tiling


def gelu(x: Tensor) -> Tensor:
    """The exact GELU."""
    return _plain(x, GELU.value)


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh approximation of GELU."""
    return _plain(x, GELU_TANH.value)


def silu_and_mul(x: Tensor) -> Tensor:
    """`silu(gate) * up` of `x (..., 2 * size)`."""
    return _gated(x, SILU.value)


def gelu_and_mul(x: Tensor) -> Tensor:
    """`gelu(gate) * up` of `x (..., 2 * size)`, with the exact GELU."""
    return _gated(x, GELU.value)


def gelu_tanh_and_mul(x: Tensor) -> Tensor:
    """`gelu(gate) * up` of `x (..., 2 * size)`, with the tanh approximation."""
    return _gated(x, GELU_TANH.value)


def _plain(x: Tensor, kind: int) -> Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        launch_activation(x, out, kind, False)
    return out


def _gated(x: Tensor, kind: int) -> Tensor:
    out = torch.empty((*x.shape[:-1], x.shape[-1] // 2), dtype=x.dtype, device=x.device)
    if out.numel():
        launch_activation(x, out, kind, True)
    return out


@launch("Tensor x, Tensor(a!) out, int kind, bool gated")
def launch_activation(x: Tensor, out: Tensor, kind: int, gated: bool) -> None:
    """Write the activation of `x`, times its second half if it is `gated`, to `out`."""
    rows, width = out.numel() // out.shape[-1], out.shape[-1]
    x, stride = rows_apart(x) if x.dim() == 2 else (x.contiguous(), x.shape[-1])
    if not gated and x.is_contiguous():
        rows, width = 1, x.numel()
    tile = tiling(width, tiles(x.device)["activation"], rows)
    activate[(tile.programs(rows),)](
        *(x, out, rows, width, stride, tile.blocks),
        KIND=kind,
        GATED=gated,
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
