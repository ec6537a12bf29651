"""Launches of the kernels of products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.layout import rows_apart
from core_plugin_kernels_triton.products.cards import card
from core_plugin_kernels_triton.products.kernels.kinds import FLOATS, INTEGERS, MICROSCALED, OPENED
from core_plugin_kernels_triton.products.kernels.multiply import merge, multiply, rows_of
from core_plugin_kernels_triton.products.rounding import Given
from core_plugin_kernels_triton.products.tiles import tiles, tiling

MOST_SPLIT = 256
"""Rows whose splits are kept at once."""

_WEIGHT = (
    "Tensor codes, Tensor? scales, Tensor? zeros, Tensor? group_of, Tensor? table, Tensor? row_scales, "
    "int kind, int bits, int scale, int group, int shared"
)


@launch(
    f"Tensor x, Tensor? x_scales, Tensor? x_factors, {_WEIGHT}, Tensor? bias, Tensor(a!) out, int inputs, int how, "
    "int x_kind, bool wide, bool alike"
)
def launch_multiply(
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
    out: Tensor,
    inputs: int,
    how: int,
    x_kind: int,
    wide: bool,
    alike: bool,
) -> None:
    """Write `x @ weight.T + bias` to `out (rows, outputs)`, whose rows may lie apart; `x` is as `Given` has it."""
    outputs = len(codes)
    x, stride = rows_apart(x)
    sizes = tiles(x.device)
    width = 8 if how != OPENED.value else 32 if wide or x.dtype == torch.float32 else 16
    tile = tiling(sizes, len(x), outputs, inputs, width, alike=alike, scaled=how == MICROSCALED.value)
    split = tile.splits > 1
    x_scale_stride = 0 if x_scales is None else x_scales.stride(0)
    factor_stride = 0 if x_factors is None or not x_factors.ndim else x_factors.stride(0)
    end: dict[str, Any] = {"SCALED": row_scales is not None, "BIASED": bias is not None, "BLOCK_M": tile.m}
    end["FACTORS"] = x_factors is not None
    # What is put together later takes memory: of many rows, which are split if all are `alike`, some come at a time.
    step = MOST_SPLIT if split else len(x)
    for start in range(0, len(x), step):
        given, result = Given(x, x_scales, x_factors).rows(start, start + step), out[start : start + step]
        rows, sums = len(result), torch.int32 if how == INTEGERS.value else torch.float32
        target = result
        if split:
            target = torch.empty((tile.splits, rows, outputs), dtype=sums, device=x.device)
        multiply[(-(-rows // tile.m) * -(-outputs // tile.n), tile.splits)](
            *(*given, codes, scales, zeros, group_of, table, row_scales, bias, target, rows, outputs, inputs),
            *(stride, x_scale_stride, factor_stride, codes.stride(0), 1 if scales is None else scales.shape[1], shared),
            *(target.stride(-2), rows * outputs, tile.steps),
            KIND=kind,
            BITS=bits,
            SCALE=scale,
            GROUP=group,
            ZEROS=zeros is not None,
            ORDERED=group_of is not None,
            HOW=how,
            FNUZ=card(x.device).fnuz,
            X=x_kind,
            RUNS=how == FLOATS.value and x_scales is not None,
            WIDE=wide,
            SPLIT=split,
            **end,
            BLOCK_N=tile.n,
            BLOCK_K=tile.k,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
        if split:
            block = sizes["merge"]["n"]
            merge[(-(-rows // tile.m), -(-outputs // block))](
                *(target, given.factors, row_scales, bias, result, rows, outputs, factor_stride, result.stride(0)),
                *(rows * outputs, tile.splits),
                **end,
                BLOCK_N=block,
                num_warps=sizes["merge"]["warps"],
            )


@launch(f"Tensor ids, {_WEIGHT}, Tensor(a!) out")
def launch_rows_of(
    ids: Tensor,
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
    out: Tensor,
) -> None:
    """Write the outputs `ids` of a weight, opened, to `out (ids, inputs)`, which is contiguous."""
    sizes = tiles(out.device)["lookup"]
    count, inputs = out.shape
    rows_of[(-(-count // sizes["n"]), -(-inputs // sizes["k"]))](
        *(ids.contiguous(), codes, scales, zeros, group_of, table, row_scales, out),
        *(count, inputs, codes.stride(0), 1 if scales is None else scales.shape[1], shared),
        KIND=kind,
        BITS=bits,
        SCALE=scale,
        GROUP=group,
        ZEROS=zeros is not None,
        ORDERED=group_of is not None,
        SCALED=row_scales is not None,
        BLOCK_N=sizes["n"],
        BLOCK_K=sizes["k"],
        num_warps=sizes["warps"],
    )
