"""Numbers of four bits, and scales of eight."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import from_float8
from core_plugin_kernels_triton.products.kernels.kinds import E8M0, FLOAT32


@triton.jit
def e2m1(code):
    """Return the values of codes 0 to 15 as float32: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives."""
    # The fields of a float16, with an exponent that counts from 14 less.
    bits = ((code & 8) << 12) | ((code & 7) << 9)
    return bits.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32) * 16384.0


@triton.jit
def power(byte):
    """Return what bytes in e8m0 stand for, float32: `2 ** (byte - 127)`, and NaN for 255."""
    bits = byte.to(tl.int32) << 23
    bits = tl.where(bits == 0, 0x00400000, bits)
    return tl.where(byte == 255, 0x7FC00000, bits).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def scale_at(p, mask, SCALE: tl.constexpr):
    """Load scales as float32."""
    if SCALE == FLOAT32:
        y = tl.load(p, mask=mask, other=0.0)
    elif SCALE == E8M0:
        y = power(tl.load(p, mask=mask, other=0))
    else:
        y = from_float8(tl.load(p, mask=mask, other=0), False).to(tl.float32)
    return y
