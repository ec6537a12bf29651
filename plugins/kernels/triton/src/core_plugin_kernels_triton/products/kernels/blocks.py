"""GGUF's blocks, opened: bytes of a row, as a file has them, become values. Offsets are those of ggml's structures."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.products.kernels.kinds import (
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    Q2_K,
    Q3_K,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
)
from core_plugin_kernels_triton.products.kernels.numbers import e2m1, power


@triton.jit
def _byte(p, mask):
    return tl.load(p, mask=mask, other=0).to(tl.int32)


@triton.jit
def _half(p, mask):
    """Return the float16 at an address that need not be aligned."""
    bits = _byte(p, mask) | (_byte(p + 1, mask) << 8)
    return bits.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _nibble(p, at, mask):
    """Return code `at` of 32: bytes have those of the first half in their low bits, those of the second above."""
    return (_byte(p + at % 16, mask) >> (at // 16 * 4)) & 15


@triton.jit
def small_block(rows, k, mask, table, KIND: tl.constexpr):
    """Return values `k (1, K)` of rows of blocks of 32 that begin at `rows (N, 1)`, float32."""
    at = k % 32
    if KIND == Q4_0:
        p = rows + k // 32 * 18
        y = (_nibble(p + 2, at, mask) - 8).to(tl.float32) * _half(p, mask)
    elif KIND == Q4_1:
        p = rows + k // 32 * 20
        y = _nibble(p + 4, at, mask).to(tl.float32) * _half(p, mask) + _half(p + 2, mask)
    elif KIND == Q5_0:
        p = rows + k // 32 * 22
        high = (_byte(p + 2 + at // 8, mask) >> (at % 8)) & 1
        y = ((_nibble(p + 6, at, mask) | (high << 4)) - 16).to(tl.float32) * _half(p, mask)
    elif KIND == Q5_1:
        p = rows + k // 32 * 24
        high = (_byte(p + 4 + at // 8, mask) >> (at % 8)) & 1
        y = (_nibble(p + 8, at, mask) | (high << 4)).to(tl.float32) * _half(p, mask) + _half(p + 2, mask)
    elif KIND == Q8_0:
        p = rows + k // 32 * 34
        y = _signed(_byte(p + 2 + at, mask)) * _half(p, mask)
    elif KIND == IQ4_NL:
        p = rows + k // 32 * 18
        y = tl.load(table + _nibble(p + 2, at, mask)) * _half(p, mask)
    else:
        tl.static_assert(KIND == MXFP4)
        p = rows + k // 32 * 17
        y = e2m1(_nibble(p + 1, at, mask)) * power(_byte(p, mask))
    return y


@triton.jit
def _signed(byte):
    return (byte - ((byte & 0x80) << 1)).to(tl.float32)


@triton.jit
def nested_block(rows, k, mask, table, KIND: tl.constexpr):
    """The same for blocks of 256, whose scales are multiples of one for the whole block."""
    half, run, at, sub = k % 256 // 128, k % 128 // 32, k % 32, k % 256 // 16
    if KIND == Q2_K:
        p = rows + k // 256 * 84
        both = _byte(p + sub, mask)
        code = (_byte(p + 16 + half * 32 + at, mask) >> (2 * run)) & 3
        scale = _half(p + 80, mask) * (both & 15).to(tl.float32)
        y = scale * code.to(tl.float32) - _half(p + 82, mask) * (both >> 4).to(tl.float32)
    elif KIND == Q3_K:
        p = rows + k // 256 * 110
        high = (_byte(p + at, mask) >> (half * 4 + run)) & 1
        code = ((_byte(p + 32 + half * 32 + at, mask) >> (2 * run)) & 3) | (high << 2)
        low = (_byte(p + 96 + sub % 8, mask) >> (sub // 8 * 4)) & 15
        upper = (_byte(p + 104 + sub % 4, mask) >> (sub // 4 * 2)) & 3
        scale = _half(p + 108, mask) * ((low | (upper << 4)) - 32).to(tl.float32)
        y = scale * (code - 4).to(tl.float32)
    elif KIND == Q4_K:
        p = rows + k // 256 * 144
        code = (_byte(p + 16 + sub // 4 * 32 + at, mask) >> (sub // 2 % 2 * 4)) & 15
        y = _with_minimum(p, sub // 2, code, mask)
    elif KIND == Q5_K:
        p = rows + k // 256 * 176
        code = (_byte(p + 48 + sub // 4 * 32 + at, mask) >> (sub // 2 % 2 * 4)) & 15
        high = (_byte(p + 16 + at, mask) >> (sub // 2)) & 1
        y = _with_minimum(p, sub // 2, code | (high << 4), mask)
    elif KIND == Q6_K:
        p = rows + k // 256 * 210
        low = (_byte(p + half * 64 + run % 2 * 32 + at, mask) >> (run // 2 * 4)) & 15
        high = (_byte(p + 128 + half * 32 + at, mask) >> (2 * run)) & 3
        scale = _half(p + 208, mask) * _signed(_byte(p + 192 + sub, mask))
        y = scale * ((low | (high << 4)) - 32).to(tl.float32)
    else:
        tl.static_assert(KIND == IQ4_XS)
        p = rows + k // 256 * 136
        block = sub // 2
        low = (_byte(p + 4 + block // 2, mask) >> (block % 2 * 4)) & 15
        high = (_byte(p + 2 + block // 4, mask) >> (block % 4 * 2)) & 3
        scale = _half(p, mask) * ((low | (high << 4)) - 32).to(tl.float32)
        y = scale * tl.load(table + _nibble(p + 8 + block * 16, at, mask))
    return y


@triton.jit
def _with_minimum(p, sub, code, mask):
    """Return `code * scale - minimum` of sub-block `sub` of eight, whose numbers of six bits lie in twelve bytes."""
    late = sub // 4
    place = sub % 4
    first = _byte(p + 4 + place, mask)
    second = _byte(p + 8 + place, mask)
    third = _byte(p + 12 + place, mask)
    scale = tl.where(late == 0, first & 63, (third & 15) | ((first >> 6) << 4))
    minimum = tl.where(late == 0, second & 63, (third >> 4) | ((second >> 6) << 4))
    return _half(p, mask) * scale.to(tl.float32) * code.to(tl.float32) - _half(p + 2, mask) * minimum.to(tl.float32)
