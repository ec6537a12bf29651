"""Products of integers and of float8, with the same values on a device and in Triton's interpreter."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import INTERPRETED, from_float8


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
        wide = tl.dot(from_float8(a, False).to(tl.float32), from_float8(b, False).to(tl.float32), zero)
    elif FNUZ:
        c = _as_fnuz(a).to(tl.float8e4b8, bitcast=True)
        d = _as_fnuz(b).to(tl.float8e4b8, bitcast=True)
        wide = 4.0 * tl.dot(c, d)
    else:
        # An instruction's sums have few bits on some cards: each is added up in float32.
        wide = tl.dot(a.to(tl.float8e4nv, bitcast=True), b.to(tl.float8e4nv, bitcast=True), max_num_imprecise_acc=0)
    return wide


@triton.jit
def _as_fnuz(x):
    """Minus zero is NaN in e4m3fnuz, and what is NaN in e4m3fn is a number there."""
    x = tl.where(x == 0x80, 0, x)
    return tl.where((x & 0x7F) == 0x7F, 0x80, x).to(tl.uint8)
