"""Products of activations with a stored weight, and rows of it."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import cast
from core_plugin_kernels_triton.products.kernels.kinds import INTEGERS
from core_plugin_kernels_triton.products.kernels.opening import opened
from core_plugin_kernels_triton.products.kernels.steps import add_tile, given_tile, result


@triton.jit
def multiply(
    x,
    x_scales,
    x_factors,
    codes,
    scales,
    zeros,
    group_of,
    table,
    row_scales,
    bias,
    out,
    rows,
    outputs,
    inputs,
    x_stride,
    x_scale_stride,
    factor_stride,
    stride,
    groups,
    shared,
    out_stride,
    split_stride,
    steps,
    KIND: tl.constexpr,
    BITS: tl.constexpr,
    SCALE: tl.constexpr,
    GROUP: tl.constexpr,
    ZEROS: tl.constexpr,
    ORDERED: tl.constexpr,
    HOW: tl.constexpr,
    FNUZ: tl.constexpr,
    X: tl.constexpr,
    RUNS: tl.constexpr,
    FACTORS: tl.constexpr,
    WIDE: tl.constexpr,
    SPLIT: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Multiply `x (rows, inputs)` with a weight `(outputs, inputs)`.

    Program `(tile, split)` sums `steps` tiles of inputs up. With `SPLIT` its sums go to `out[split]`, `(rows, outputs)`
    in float32 or int32, for `merge`; without, results go to `out`. `HOW` says in what it multiplies: `x` holds int8,
    the bytes of e4m3 or pairs of e2m1 where it is not the activations themselves; with `RUNS` there are `x_scales` for
    runs of `BLOCK_K` of its inputs, of `MICROSCALED` (`x` is of the kind `X`) for runs of `GROUP`, and with `FACTORS`
    results are multiplied by `x_factors` of their row. `WIDE` multiplies in float32 whatever the dtype of `x` is.
    """
    tiles = (rows + BLOCK_M - 1) // BLOCK_M
    tile, split = tl.program_id(0), tl.program_id(1)
    m = (tile % tiles).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tile // tiles).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    asked, known = m < rows, n < outputs
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.int32 if HOW == INTEGERS else tl.float32)
    first = split * steps * BLOCK_K
    for start in range(first, min(first + steps * BLOCK_K, inputs), BLOCK_K):
        a = given_tile(x + m * x_stride, asked, start, inputs, HOW, X, BLOCK_K)
        acc = add_tile(
            *(acc, a, x_scales, codes, scales, zeros, group_of, table, m, asked, n, known, start, inputs),
            *(x_scale_stride, stride, groups, shared, KIND, BITS, SCALE, GROUP, ZEROS, ORDERED, HOW, FNUZ, X, RUNS),
            *(WIDE, BLOCK_K),
        )
    place = out + (m * out_stride)[:, None] + n[None, :]
    inside = asked[:, None] & known[None, :]
    if SPLIT:
        tl.store(place + split.to(tl.int64) * split_stride, acc, mask=inside)
    else:
        y = result(acc, x_factors, row_scales, bias, m, n, asked, known, factor_stride, FACTORS, SCALED, BIASED)
        tl.store(place, cast(y, out.dtype.element_ty), mask=inside)


@triton.jit
def merge(
    sums,
    x_factors,
    row_scales,
    bias,
    out,
    rows,
    outputs,
    factor_stride,
    out_stride,
    split_stride,
    splits,
    FACTORS: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Add the sums of `multiply`, `(splits, rows, outputs)`, in the order of the inputs, and write the results."""
    m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    asked, known = m < rows, n < outputs
    inside = asked[:, None] & known[None, :]
    place = sums + (m * outputs)[:, None] + n[None, :]
    acc = tl.load(place, mask=inside, other=0)
    for _ in range(1, splits):
        place += split_stride
        acc += tl.load(place, mask=inside, other=0)
    y = result(acc, x_factors, row_scales, bias, m, n, asked, known, factor_stride, FACTORS, SCALED, BIASED)
    tl.store(out + (m * out_stride)[:, None] + n[None, :], cast(y, out.dtype.element_ty), mask=inside)


@triton.jit
def rows_of(
    ids,
    codes,
    scales,
    zeros,
    group_of,
    table,
    row_scales,
    out,
    count,
    inputs,
    stride,
    groups,
    shared,
    KIND: tl.constexpr,
    BITS: tl.constexpr,
    SCALE: tl.constexpr,
    GROUP: tl.constexpr,
    ZEROS: tl.constexpr,
    ORDERED: tl.constexpr,
    SCALED: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Write the outputs `ids (count,)` int64 of a weight, opened, to `out (count, inputs)`."""
    place = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    start = tl.program_id(1) * BLOCK_K
    known = place < count
    n = tl.load(ids + place, mask=known, other=0)
    y = opened(
        *(codes, scales, zeros, group_of, table, n, known, start, inputs, stride, groups, shared),
        *(KIND, BITS, SCALE, GROUP, ZEROS, ORDERED, BLOCK_K),
    )
    if SCALED:
        y *= tl.load(row_scales + n, mask=known, other=0.0)[:, None]
    k = start + tl.arange(0, BLOCK_K)
    inside = known[:, None] & (k < inputs)[None, :]
    tl.store(out + (place * inputs)[:, None] + k[None, :], cast(y, out.dtype.element_ty), mask=inside)
