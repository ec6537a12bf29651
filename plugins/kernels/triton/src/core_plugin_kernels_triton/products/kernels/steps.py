"""Steps that every product takes with a tile of a stored weight: add its products up, and make results of sums."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import cast, dot
from core_plugin_kernels_triton.products.kernels.dots import dot_float8, dot_int8, dot_scaled
from core_plugin_kernels_triton.products.kernels.kinds import E2M1, FLOATS, INTEGERS, MICROSCALED, NO_SCALE
from core_plugin_kernels_triton.products.kernels.numbers import scale_at
from core_plugin_kernels_triton.products.kernels.opening import bytes_at, opened


@triton.jit
def given_tile(rows, asked, start, inputs, HOW: tl.constexpr, X: tl.constexpr, BLOCK_K: tl.constexpr):
    """Load activations `start` to `start + BLOCK_K` of rows that begin at `rows (M,)`, where they are `asked`.

    `X` is their kind where `HOW` is `MICROSCALED`: those of e2m1 are pairs, `(M, BLOCK_K / 2)`.
    """
    if HOW == MICROSCALED and X == E2M1:
        k = start // 2 + tl.arange(0, BLOCK_K // 2)
        some = asked[:, None] & (2 * k < inputs)[None, :]
    else:
        k = start + tl.arange(0, BLOCK_K)
        some = asked[:, None] & (k < inputs)[None, :]
    return tl.load(rows[:, None] + k[None, :], mask=some, other=0)


@triton.jit
def add_tile(
    acc,
    a,
    x_scales,
    codes,
    scales,
    zeros,
    group_of,
    table,
    m,
    asked,
    n,
    known,
    start,
    inputs,
    x_scale_stride,
    stride,
    groups,
    shared,
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
    WIDE: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Return `acc (M, N)` and the products of `a (M, K)` with inputs from `start` on of outputs `n (N,)` int64.

    `m (M,)` int64 are the rows of `x_scales` that belong to `a`; rows count where they are `asked`, outputs where
    they are `known`. The rest is as `multiply` says.
    """
    inside = known[:, None] & (start + tl.arange(0, BLOCK_K) < inputs)[None, :]
    if HOW == INTEGERS:
        b = bytes_at(codes, n, start + tl.arange(0, BLOCK_K), inside, stride)
        acc = dot_int8(a, tl.trans(b.to(tl.int8, bitcast=True)), acc)
    elif HOW == FLOATS:
        b = bytes_at(codes, n, start + tl.arange(0, BLOCK_K), inside, stride)
        some = dot_float8(a, tl.trans(b), FNUZ)
        if RUNS:
            some *= tl.load(x_scales + m * x_scale_stride + start // BLOCK_K, mask=asked, other=0.0)[:, None]
        if SCALE != NO_SCALE:
            some *= scale_at(scales + n // shared * groups + start // GROUP, known, SCALE)[None, :]
        acc += some
    elif HOW == MICROSCALED:
        b = _as_stored(codes, n, known, start, inputs, stride, BITS, BLOCK_K)
        run = start // GROUP + tl.arange(0, BLOCK_K // GROUP)
        there = (run * GROUP < inputs)[None, :]
        a_scale = tl.load(x_scales + (m * x_scale_stride)[:, None] + run[None, :], mask=asked[:, None] & there, other=0)
        at = scales + (n // shared * groups)[:, None] + run[None, :]
        acc = dot_scaled(a, a_scale, b, tl.load(at, mask=known[:, None] & there, other=0), acc, X, KIND, SCALE)
    else:
        b = opened(
            *(codes, scales, zeros, group_of, table, n, known, start, inputs, stride, groups, shared),
            *(KIND, BITS, SCALE, GROUP, ZEROS, ORDERED, BLOCK_K),
        )
        if WIDE:
            acc = dot(cast(a, tl.float32), tl.trans(b), acc)
        else:
            acc = dot(a, tl.trans(cast(b, a.dtype)), acc)
    return acc


@triton.jit
def _as_stored(codes, n, known, start, inputs, stride, BITS: tl.constexpr, BLOCK_K: tl.constexpr):
    """Load codes of eight bits, or pairs of four: `(N, K)` or `(N, K / 2)` uint8."""
    if BITS == 8:
        k = start + tl.arange(0, BLOCK_K)
        some = k < inputs
    else:
        k = start // 2 + tl.arange(0, BLOCK_K // 2)
        some = 2 * k < inputs
    return bytes_at(codes, n, k, known[:, None] & some[None, :], stride)


@triton.jit
def result(
    acc,
    x_factors,
    row_scales,
    bias,
    m,
    n,
    asked,
    known,
    factor_stride,
    FACTORS: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
):
    """Return sums times the factors of rows and the scales of outputs, and the bias, float32."""
    y = acc.to(tl.float32)
    if FACTORS:
        y *= tl.load(x_factors + m * factor_stride, mask=asked, other=0.0)[:, None]
    if SCALED:
        y *= tl.load(row_scales + n, mask=known, other=0.0)[None, :]
    if BIASED:
        y += cast(tl.load(bias + n, mask=known, other=0.0), tl.float32)[None, :]
    return y
