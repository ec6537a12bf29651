"""Launches of products with experts' weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from core_plugin_kernels_triton.experts.multiply import multiply_kernel, total_kernel
from core_plugin_kernels_triton.experts.opening import PLAIN
from core_plugin_kernels_triton.experts.tiles import Tile, plain_tile, stored_tile, tiles
from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.tiles import tiling
from core_plugin_kernels_triton.products.cards import card
from core_plugin_kernels_triton.products.kernels.kinds import FLOATS, MICROSCALED, NO_SCALE, OPENED

_PLAIN = {
    "KIND": PLAIN.value,
    "BITS": 16,
    "SCALE": NO_SCALE.value,
    "GROUP": 1,
    "ZEROS": False,
    "ORDERED": False,
    "SCALED": False,
    "HOW": OPENED.value,
    "FNUZ": False,
    "X": 0,
    "RUNS": False,
    "FACTORS": False,
}


@launch("Tensor x, Tensor weight, Tensor? bias, Tensor order, Tensor starts, Tensor(a!) out, int top_k, bool into")
def launch_multiply(
    x: Tensor, weight: Tensor, bias: Tensor | None, order: Tensor, starts: Tensor, out: Tensor, top_k: int, into: bool
) -> None:
    """Multiply all rows with their experts' weights.

    Args:
        x: `(tokens, inputs)`, or without `into` `(pairs, inputs)` by expert; rows may lie apart.
        weight: `(experts, rows, inputs)`.
        bias: `(experts, rows)`.
        order, starts: As `by_expert` returns them.
        out: `(pairs, rows)`, rows may lie apart.
    """
    tile = plain_tile(x.device, weight.shape[1], weight.shape[2])
    tensors = (x, None, None, weight, None, None, None, None, None, bias, order, starts, out)
    constants = {"TOP_K": top_k, "INTO": into, "SORTED": not into, **_PLAIN}
    _multiply(tile, tensors, (0, 0, weight.stride(1), 0, 1, 1), weight.shape[2], constants)


@launch(
    "Tensor x, Tensor? x_scales, Tensor? x_factors, "
    "Tensor codes, Tensor? scales, Tensor? zeros, Tensor? group_of, Tensor? table, Tensor? row_scales, "
    "int kind, int bits, int scale, int group, int shared, Tensor? bias, Tensor order, Tensor starts, "
    "Tensor(a!) out, int top_k, bool into, bool by_expert, int inputs, int how, int x_kind"
)
def launch_stored(
    x: Tensor,
    x_scales: Tensor | None,
    x_factors: Tensor | None,
    codes: Tensor,
    scales: Tensor | None,
    zeros: Tensor | None,
    group_of: Tensor | None,
    table: Tensor | None,
    row_scales: Tensor | None,
    kind: int,
    bits: int,
    scale: int,
    group: int,
    shared: int,
    bias: Tensor | None,
    order: Tensor,
    starts: Tensor,
    out: Tensor,
    top_k: int,
    into: bool,
    by_expert: bool,
    inputs: int,
    how: int,
    x_kind: int,
) -> None:
    """The same with weights as they are stored: what `products.layers.weight_of` returns, of all experts.

    Args:
        x: As `Given` has it, of tokens, or of pairs where they are `by_expert`; so are `x_scales` and `x_factors`.
    """
    width = 8 if how != OPENED.value else 32 if x.dtype == torch.float32 else 16
    tile = stored_tile(x.device, codes.shape[1], inputs, width, scaled=how == MICROSCALED.value)
    tensors = (x, x_scales, x_factors, codes, scales, zeros, group_of, table, row_scales, bias, order, starts, out)
    strides = (
        0 if x_scales is None else x_scales.stride(0),
        0 if x_factors is None else x_factors.stride(0),
        codes.stride(1),
        *((0, 1) if scales is None else (scales.stride(0), scales.shape[2])),
        shared,
    )
    constants = {
        "TOP_K": top_k,
        "INTO": into,
        "SORTED": by_expert,
        "KIND": kind,
        "BITS": bits,
        "SCALE": scale,
        "GROUP": group,
        "ZEROS": zeros is not None,
        "ORDERED": group_of is not None,
        "HOW": how,
        "SCALED": row_scales is not None,
        "FNUZ": card(x.device).fnuz,
        "X": x_kind,
        "RUNS": how == FLOATS.value and x_scales is not None,
        "FACTORS": x_factors is not None,
    }
    _multiply(tile, tensors, strides, inputs, constants)


def _multiply(
    tile: Tile,
    tensors: tuple[Tensor | None, ...],
    strides: tuple[int, int, int, int, int, int],
    inputs: int,
    constants: dict[str, Any],
) -> None:
    """Launch `multiply_kernel` with as many programs as any distribution of the rows needs."""
    x, _, _, weight, *_, bias, order, _, out = tensors
    assert x is not None and weight is not None and order is not None and out is not None
    (experts, rows), pairs = weight.shape[:2], order.shape[0]
    spread = pairs // tile.m + experts + 1
    x_scale_stride, factor_stride, row_stride, scale_stride, groups, shared = strides
    multiply_kernel[(min(pairs, spread), -(-rows // tile.n))](
        *tensors,
        *(rows, inputs, experts, x.stride(0), x_scale_stride, factor_stride, weight.stride(0), row_stride),
        *(scale_stride, groups, shared, 0 if bias is None else bias.stride(0), out.stride(0)),
        **constants,
        BIASED=bias is not None,
        FEW=pairs <= spread,
        BLOCK_M=tile.m,
        BLOCK_N=tile.n,
        BLOCK_K=tile.k,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


@launch("Tensor results, Tensor weights, Tensor ids, Tensor(a!) out, int experts")
def launch_total(results: Tensor, weights: Tensor, ids: Tensor, out: Tensor, experts: int) -> None:
    """Sum up `results (T * k, width)` by `weights (T, k)` float32, where `ids (T, k)` are experts: `out (T, width)`."""
    tokens, width = out.shape
    tile = tiling(width, tiles(out.device)["total"])
    total_kernel[(tile.programs(tokens),)](
        *(results, weights, ids, out, tokens, width, experts, tile.blocks),
        TOP_K=ids.shape[1],
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
