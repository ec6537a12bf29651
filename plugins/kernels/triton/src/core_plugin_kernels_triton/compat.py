"""Casts and products with the same values on a device and in Triton's interpreter.

The interpreter multiplies bfloat16 as if its bits were integers, cuts float32 off where it should round to bfloat16,
and loses carries where it rounds to float8. Kernels therefore cast by `cast`, multiply by `dot`, and keep float8 as
bytes, which `from_float8` and `to_float8` read and write by integer arithmetic, on a device as well: so no card has to
know the format. Everything else of 16 bits (sums, comparisons) is done in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.interpreter import quicken


@triton.jit
def _nothing():
    pass


INTERPRETED = tl.constexpr(not isinstance(_nothing, triton.JITFunction))
"""Whether kernels run in the interpreter: `TRITON_INTERPRET=1` was set when Triton was imported."""

if INTERPRETED.value:
    quicken()


@triton.jit
def cast(x, dtype: tl.constexpr):
    """Return `x` in a float dtype of at least 16 bits, rounded to nearest even."""
    if INTERPRETED:
        y = _cast_interpreted(x, dtype)
    else:
        y = x.to(dtype)
    return y


@triton.jit
def _cast_interpreted(x, dtype: tl.constexpr):
    y = x
    if x.dtype == tl.bfloat16:
        y = (x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    if dtype == tl.bfloat16:
        wide = y.to(tl.float32)
        # Not a number comes first: its bits may be the greatest, and sums of the interpreter must not overflow.
        bits = tl.where(wide == wide, wide.to(tl.uint32, bitcast=True), 0x7FC00000).to(tl.uint32)
        kept = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        y = kept.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        y = y.to(dtype)
    return y


@triton.jit
def dot(a, b, acc, PRECISION: tl.constexpr = "ieee"):
    """Return `acc + a @ b`: `a (M, K)` and `b (K, N)` of one float dtype, `acc (M, N)` float32.

    `PRECISION`: How a device multiplies float32, in Triton's names. The interpreter sums in float64: in float32 a row's
    sums would depend on which row it is, in the libraries that numpy has for some processors.
    """
    if INTERPRETED:
        wide = tl.dot(cast(a, tl.float32).to(tl.float64), cast(b, tl.float32).to(tl.float64), acc.to(tl.float64))
        y = wide.to(tl.float32)
    else:
        y = tl.dot(a, b, acc, input_precision=PRECISION)
    return y


@triton.jit
def from_float8(x, E5M2: tl.constexpr):
    """Return the values of bytes `x` (uint8) as float16, which has all of them. Formats: e5m2, else e4m3fn."""
    bits = x.to(tl.uint16)
    if E5M2:  # the upper half of a float16
        y = (bits << 8).to(tl.float16, bitcast=True)
    else:  # the same fields, with an exponent that counts from 8 less
        y = (((bits & 0x80) << 8) | ((bits & 0x7F) << 7)).to(tl.float16, bitcast=True) * 256.0
        y = tl.where((bits & 0x7F) == 0x7F, float("nan"), y).to(tl.float16)
    return y


@triton.jit
def to_float8(x, E5M2: tl.constexpr):
    """Return the bytes (uint8) of float32 `x`, rounded to nearest even; what is too large becomes the largest."""
    # Below `least` values are multiples of one step, and a sum with `magic` is rounded to that step.
    if E5M2:
        most: tl.constexpr = 57344.0
        least: tl.constexpr = 6.103515625e-05
        magic: tl.constexpr = 192.0
        shift: tl.constexpr = 21
        bias: tl.constexpr = 448
        magic_bits: tl.constexpr = 0x43400000
    else:
        most: tl.constexpr = 448.0
        least: tl.constexpr = 0.015625
        magic: tl.constexpr = 24576.0
        shift: tl.constexpr = 20
        bias: tl.constexpr = 960
        magic_bits: tl.constexpr = 0x46C00000
    is_number = x == x
    size = tl.where(is_number, tl.abs(x), 0.0)
    size = tl.where(size > most, most, size).to(tl.float32)
    bits = size.to(tl.int32, bitcast=True)
    large = ((bits + ((1 << (shift - 1)) - 1) + ((bits >> shift) & 1)) >> shift) - bias
    small = (size + magic).to(tl.int32, bitcast=True) - magic_bits
    code = tl.where(is_number, tl.where(size < least, small, large), 0x7F)
    sign = (x.to(tl.uint32, bitcast=True) >> 24) & 0x80
    return (code.to(tl.uint32) | sign).to(tl.uint8)
