"""Products of integers, of float8, and of numbers in runs with scales: the same values on a device and interpreted."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import INTERPRETED, dot, from_float8
from core_plugin_kernels_triton.products.kernels.kinds import E2M1, E4M3, E5M2, E8M0
from core_plugin_kernels_triton.products.kernels.numbers import e2m1


@triton.jit
def dot_int8(a, b, acc):
    """Return `acc + a @ b`: `a (M, K)` and `b (K, N)` int8, `acc (M, N)` int32."""
    if INTERPRETED:
        # Products and sums up to 2^53 are exact in float64, and numpy multiplies that quicker than integers.
        y = acc + tl.dot(a.to(tl.float64), b.to(tl.float64), tl.zeros(acc.shape, tl.float64)).to(tl.int32)
    else:
        y = tl.dot(a, b, acc, out_dtype=tl.int32)
    return y


@triton.jit
def dot_float8(a, b, FNUZ: tl.constexpr):
    """Return `a @ b` of bytes `(M, K)` and `(K, N)` that hold e4m3fn.

    Cards of AMD before gfx950 multiply e4m3fnuz instead, in which the same bits are half as much: bytes that mean
    something else there are replaced, and the result is taken four times.
    """
    if INTERPRETED:
        zero = tl.zeros((a.shape[0], b.shape[1]), tl.float32)
        wide = dot(from_float8(a, False).to(tl.float32), from_float8(b, False).to(tl.float32), zero)
    elif FNUZ:
        c = _as_fnuz(a).to(tl.float8e4b8, bitcast=True)
        d = _as_fnuz(b).to(tl.float8e4b8, bitcast=True)
        wide = 4.0 * tl.dot(c, d)
    else:
        # An instruction's sums have few bits on some cards: each is added up in float32.
        wide = tl.dot(a.to(tl.float8e4nv, bitcast=True), b.to(tl.float8e4nv, bitcast=True), max_num_imprecise_acc=0)
    return wide


@triton.jit
def dot_scaled(a, a_scale, b, b_scale, acc, A: tl.constexpr, B: tl.constexpr, SCALE: tl.constexpr):
    """Return `acc + a @ b.T` of numbers in runs of inputs: `a (M, K)` and `b (N, K)` bytes of e4m3 or e5m2, or pairs of
    e2m1, by the kinds `A` and `B`; scales `(M, runs)` and `(N, runs)` uint8, e8m0 or e4m3.

    Triton's interpreter takes scales in e8m0 only: of others the numbers are opened there.
    """
    if INTERPRETED and SCALE != E8M0:
        tl.static_assert(A == E2M1 and B == E2M1)
        acc += tl.dot(_opened_runs(a, a_scale), tl.trans(_opened_runs(b, b_scale)), input_precision="ieee")
    else:
        a_format: tl.constexpr = _format(A)
        b_format: tl.constexpr = _format(B)
        if SCALE == E8M0:
            acc = tl.dot_scaled(a, a_scale, a_format, tl.trans(b), b_scale, b_format, acc)
        else:
            a_scale = a_scale.to(tl.float8e4nv, bitcast=True)
            b_scale = b_scale.to(tl.float8e4nv, bitcast=True)
            acc = tl.dot_scaled(a, a_scale, a_format, tl.trans(b), b_scale, b_format, acc)
    return acc


@triton.constexpr_function
def _format(kind):
    """Return Triton's name of codes."""
    return {E2M1.value: "e2m1", E4M3.value: "e4m3", E5M2.value: "e5m2"}[kind]


@triton.jit
def _opened_runs(x, scale):
    """Return pairs of e2m1 `(N, K / 2)` times scales in e4m3 `(N, runs)`, float32."""
    values = tl.interleave(e2m1((x & 15).to(tl.int32)), e2m1((x >> 4).to(tl.int32)))
    RUN: tl.constexpr = values.shape[1] // scale.shape[1]
    runs = tl.reshape(values, (x.shape[0], scale.shape[1], RUN)) * from_float8(scale, False).to(tl.float32)[:, :, None]
    return tl.reshape(runs, values.shape)


@triton.jit
def _as_fnuz(x):
    """Minus zero is NaN in e4m3fnuz, and what is NaN in e4m3fn is a number there."""
    x = tl.where(x == 0x80, 0, x)
    return tl.where((x & 0x7F) == 0x7F, 0x80, x).to(tl.uint8)
