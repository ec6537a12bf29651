"""A tile of a weight, opened: the one place where the kernels read stored weights."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import from_float8
from core_plugin_kernels_triton.products.kernels.blocks import nested_block, small_block
from core_plugin_kernels_triton.products.kernels.kinds import E2M1, E4M3, E5M2, FILE, INT, NESTED, NO_SCALE, TABLE
from core_plugin_kernels_triton.products.kernels.numbers import e2m1, scale_at


@triton.jit
def bytes_at(codes, n, k, inside, stride):
    """Load codes of one byte: `(N, K)` uint8."""
    return tl.load(codes + (n * stride)[:, None] + k[None, :], mask=inside, other=0)


@triton.jit
def opened(
    codes,
    scales,
    zeros,
    group_of,
    table,
    n,
    known,
    start,
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
    BLOCK_K: tl.constexpr,
):
    """Return inputs `start` to `start + BLOCK_K` of outputs `n (N,)` int64 where `known`, `(N, K)` float32.

    What does not exist is 0 times something finite. A scale for the whole output is left to the caller.
    """
    k = start + tl.arange(0, BLOCK_K)
    inside = known[:, None] & (k < inputs)[None, :]
    if KIND >= NESTED:
        y = nested_block(codes + (n * stride)[:, None], k[None, :], inside, table, KIND)
    elif KIND >= FILE:
        y = small_block(codes + (n * stride)[:, None], k[None, :], inside, table, KIND)
    else:
        y = _numbers(codes, table, n, k, known, start, inside, inputs, stride, KIND, BITS, ZEROS, BLOCK_K)
        if SCALE != NO_SCALE:
            row = n // shared * groups
            if ORDERED:  # any input may belong to any group
                group = tl.load(group_of + k, mask=k < inputs, other=0)
                at, given = row[:, None] + group[None, :], inside
            elif GROUP % BLOCK_K == 0:  # one group
                at, given = (row + start // GROUP)[:, None], known[:, None]
            else:
                at, given = row[:, None] + (k // GROUP)[None, :], inside
            if ZEROS:
                y -= tl.load(zeros + at, mask=given, other=0.0)
            y *= scale_at(scales + at, given, SCALE)
    return y


@triton.jit
def _numbers(
    codes,
    table,
    n,
    k,
    known,
    start,
    inside,
    inputs,
    stride,
    KIND: tl.constexpr,
    BITS: tl.constexpr,
    ZEROS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Return what the codes stand for, without scales and zero points, float32."""
    code = _codes(codes, n, k, known, start, inside, inputs, stride, BITS, BLOCK_K)
    if KIND == INT:
        if ZEROS:
            y = code.to(tl.float32)
        elif BITS == 8:
            y = (code.to(tl.int32) - ((code.to(tl.int32) & 0x80) << 1)).to(tl.float32)
        else:
            y = (code.to(tl.int32) - (1 << (BITS - 1))).to(tl.float32)
    elif KIND == E4M3:
        y = from_float8(code, False).to(tl.float32)
    elif KIND == E5M2:
        y = from_float8(code, True).to(tl.float32)
    elif KIND == E2M1:
        y = e2m1(code.to(tl.int32))
    else:
        tl.static_assert(KIND == TABLE)
        y = tl.load(table + code.to(tl.int32))
    return y


@triton.jit
def _codes(codes, n, k, known, start, inside, inputs, stride, BITS: tl.constexpr, BLOCK_K: tl.constexpr):
    """Return codes of `BITS` bits, which follow each other from the lowest bit of a row's first byte, uint8."""
    if BITS == 8:
        y = bytes_at(codes, n, k, inside, stride)
    elif BITS == 4:
        pair = start // 2 + tl.arange(0, BLOCK_K // 2)
        both = bytes_at(codes, n, pair, known[:, None] & (2 * pair < inputs)[None, :], stride)
        y = tl.interleave(both & 15, both >> 4)
    else:
        at = k * BITS
        wide = bytes_at(codes, n, at // 8, inside, stride).to(tl.int32)
        if 8 % BITS != 0:  # a code may begin in one byte and end in the next, which a row has if it does
            ends = inside & (at % 8 + BITS > 8)[None, :]
            wide |= bytes_at(codes, n, at // 8 + 1, ends, stride).to(tl.int32) << 8
        y = ((wide >> (at % 8)[None, :]) & ((1 << BITS) - 1)).to(tl.uint8)
    return y
