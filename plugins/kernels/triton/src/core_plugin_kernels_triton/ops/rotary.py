"""Rotary position embedding; forms as in `core.ops.rotary`."""

from __future__ import annotations

import torch
from torch import Tensor

from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.kernels import rotary as kernels
from core_plugin_kernels_triton.ops.layout import rows_apart
from core_plugin_kernels_triton.ops.tiles import power_of_two, tiles, tiling


def rotary(positions: Tensor, q: Tensor, k: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys by position; the first and the second half of the rotated dimensions form pairs."""
    return _rotated(positions, q, k, table, interleaved=False)


def rotary_interleaved(positions: Tensor, q: Tensor, k: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys by position, where dimensions 2i and 2i + 1 form a pair."""
    return _rotated(positions, q, k, table, interleaved=True)


def _rotated(positions: Tensor, q: Tensor, k: Tensor, table: Tensor, *, interleaved: bool) -> tuple[Tensor, Tensor]:
    q_out, k_out = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k))
    if len(positions):
        launch_rotary(positions, q, k, table, q_out, k_out, interleaved)
    return q_out, k_out


@launch("Tensor positions, Tensor q, Tensor k, Tensor table, Tensor(a!) q_out, Tensor(b!) k_out, bool interleaved")
def launch_rotary(
    positions: Tensor, q: Tensor, k: Tensor, table: Tensor, q_out: Tensor, k_out: Tensor, interleaved: bool
) -> None:
    """Write the rotated queries and keys to `q_out` and `k_out`."""
    head_dim, half = q.shape[-1], table.shape[-1] // 4
    rest = head_dim - 2 * half
    q, q_stride = rows_apart(q)
    k, k_stride = rows_apart(k)
    sizes = tiles(q.device)["rotary"]
    tile = tiling(head_dim, {**sizes, "tile": max(sizes["tile"], power_of_two(head_dim))})  # heads in one piece
    tokens, q_heads, k_heads = len(positions), q.shape[1], k.shape[1]
    q_blocks, k_blocks = tile.programs(tokens * q_heads), tile.programs(tokens * k_heads)
    kernels.rotary[(q_blocks + k_blocks,)](
        *(positions.contiguous(), q, k, table, q_out, k_out, tokens, q_heads, k_heads, head_dim, half),
        *(q_stride, k_stride, table.stride(0), q_blocks),
        INTERLEAVED=interleaved,
        ROWS=tile.rows,
        HALF=power_of_two(half),
        REST=power_of_two(rest) if rest else 0,
        num_warps=tile.warps,
    )
