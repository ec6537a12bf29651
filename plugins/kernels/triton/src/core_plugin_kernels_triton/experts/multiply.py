"""Products of rows by expert with the weights of their experts, and ordered sums over the experts of a token.

A tile is some rows of one expert. Which expert that is is found on the device, where the rows of each begin; there are
as many programs as any distribution of the rows needs, and those that have none end at once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import cast, dot
from core_plugin_kernels_triton.experts.opening import PLAIN, weight_tile
from core_plugin_kernels_triton.products.kernels.kinds import INTEGERS, NO_SCALE
from core_plugin_kernels_triton.products.kernels.steps import add_tile, given_tile, result


@triton.jit
def rows_of_tile(tile, starts, kinds, FEW: tl.constexpr, BLOCK_M: tl.constexpr):
    """Return the kind that a tile belongs to, its first row, and where the rows of the kind end.

    `FEW`: a tile begins at each row; those that do not begin at a multiple of `BLOCK_M` of their kind are to be left
    out: they are returned with their end. Else the first tile of kind e is `starts[e] // BLOCK_M + e`, which leaves
    each kind as many as it needs, and a spare one.
    """
    low = kinds * 0
    high = low + kinds
    while high - low > 1:
        middle = (low + high) // 2
        begin = tl.load(starts + middle)
        if FEW:
            begun = begin <= tile
        else:
            begun = begin // BLOCK_M + middle <= tile
        low = tl.where(begun, middle, low)
        high = tl.where(begun, high, middle)
    begin = tl.load(starts + low)
    end = tl.load(starts + low + 1)
    if FEW:
        row = tl.where((tile - begin) % BLOCK_M == 0, tile, end)
    else:
        row = begin + (tile - begin // BLOCK_M - low) * BLOCK_M
    return low, row, end


@triton.jit(do_not_specialize=["experts"], do_not_specialize_on_alignment=["order", "starts"])
def multiply_kernel(
    x,
    x_scales,
    x_factors,
    weight,
    scales,
    zeros,
    group_of,
    table,
    row_scales,
    bias,
    order,
    starts,
    out,
    rows,
    inputs,
    experts,
    x_stride,
    x_scale_stride,
    factor_stride,
    expert_stride,
    row_stride,
    scale_stride,
    groups,
    shared,
    bias_stride,
    out_stride,
    TOP_K: tl.constexpr,
    INTO: tl.constexpr,
    SORTED: tl.constexpr,
    BIASED: tl.constexpr,
    FEW: tl.constexpr,
    KIND: tl.constexpr,
    BITS: tl.constexpr,
    SCALE: tl.constexpr,
    GROUP: tl.constexpr,
    ZEROS: tl.constexpr,
    ORDERED: tl.constexpr,
    SCALED: tl.constexpr,
    HOW: tl.constexpr,
    FNUZ: tl.constexpr,
    X: tl.constexpr,
    RUNS: tl.constexpr,
    FACTORS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Write a tile of `out (pairs, rows)`.

    `SORTED`: rows of `x` are by expert, else they are tokens. `INTO`: results are by expert, zeros without one. Else
    they are by pair, and those without an expert are not written. A weight of the kind `PLAIN` is `(experts, rows,
    inputs)`; of another kind its codes are, and what belongs to them is, as `products.kernels` has them for one expert.
    """
    kind, first, end = rows_of_tile(tl.program_id(0), starts, experts + 1, FEW, BLOCK_M)
    if first >= end:
        return
    m = first + tl.arange(0, BLOCK_M)
    n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    live, known = m < end, n < rows
    there = live[:, None] & known[None, :]
    y = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    target = m
    if kind < experts:
        pair = tl.load(order + m, mask=live, other=0)
        if SORTED:
            source = m.to(tl.int64)
        else:
            source = (pair // TOP_K).to(tl.int64)
        if not INTO:
            target = pair
        expert = kind.to(tl.int64)
        own = weight + expert * expert_stride
        if SCALE != NO_SCALE:
            scales += expert * scale_stride
        if ZEROS:
            zeros += expert * scale_stride
        if ORDERED:
            group_of += expert * inputs
        if SCALED:
            row_scales += expert * rows
        if BIASED:
            bias += expert * bias_stride
        total = tl.zeros([BLOCK_M, BLOCK_N], tl.int32 if HOW == INTEGERS else tl.float32)
        begin = x + source * x_stride
        for start in range(0, inputs, BLOCK_K):
            given = given_tile(begin, live, start, inputs, HOW, X, BLOCK_K)
            if KIND == PLAIN:
                k = start + tl.arange(0, BLOCK_K)
                total = dot(given, weight_tile(own, n, k, rows, inputs, row_stride), total)
            else:
                total = add_tile(
                    *(total, given, x_scales, own, scales, zeros, group_of, table, source, live, n, known),
                    *(start, inputs, x_scale_stride, row_stride, groups, shared),
                    *(KIND, BITS, SCALE, GROUP, ZEROS, ORDERED, HOW, FNUZ, X, RUNS, False, BLOCK_K),
                )
        y = result(total, x_factors, row_scales, bias, source, n, live, known, factor_stride, FACTORS, SCALED, BIASED)
    if INTO or kind < experts:
        at = out + (target.to(tl.int64) * out_stride)[:, None] + n[None, :]
        tl.store(at, cast(y, out.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["tokens"])
def total_kernel(
    results,
    weights,
    ids,
    out,
    tokens,
    width,
    experts,
    blocks,
    TOP_K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write a tile of `out (tokens, width)`: the results of each token's experts, weighed, one after another."""
    program = tl.program_id(0)
    token = (program // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    place = ((program % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    known = token < tokens
    inside = known[:, None] & (place < width)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for choice in range(TOP_K):
        pair = token * TOP_K + choice
        expert = tl.load(ids + pair, mask=known, other=-1)
        real = ((expert >= 0) & (expert < experts))[:, None]
        share = tl.load(weights + pair, mask=known, other=0.0)[:, None]
        value = tl.load(results + pair[:, None] * width + place, mask=inside & real, other=0.0)
        total += tl.where(real, share * cast(value, tl.float32), 0.0)
    tl.store(out + token[:, None] * width + place, cast(total, out.dtype.element_ty), mask=inside)
