"""Splits of rows with few tokens: where they begin, and how they are put together."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.attention.keys import first_key, mean_of
from core_plugin_kernels_triton.attention.shared import split_size
from core_plugin_kernels_triton.compat import cast


@triton.jit
def span_of(place, WINDOW: tl.constexpr, CHUNK: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the first key that a token at `place` sees, and where its tile of keys begins."""
    least = first_key(place, WINDOW, CHUNK)
    return least, least // BLOCK_N * BLOCK_N


@triton.jit(do_not_specialize=["queries", "splits"], do_not_specialize_on_alignment=["starts", "lengths"])
def merge_kernel(
    sums_in,
    tops_in,
    starts,
    lengths,
    out,
    sinks,
    value_scales,
    out_token,
    queries,
    splits,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WINDOW: tl.constexpr,
    CHUNK: tl.constexpr,
    FLOAT8: tl.constexpr,
    SINKS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLIT: tl.constexpr,
    SPLITS: tl.constexpr,
    FEW: tl.constexpr,
    HEADS: tl.constexpr,
):
    """Put the splits of one query and `HEADS` heads together. Sums are always of `SPLITS` terms, in one order."""
    row = tl.program_id(0) // queries
    query = tl.program_id(0) % queries
    first = tl.load(starts + row)
    count = tl.load(starts + row + 1) - first
    if (count > FEW) | (query >= count):
        return
    length = tl.load(lengths + row)
    _, begin = span_of(length - count, WINDOW, CHUNK, BLOCK_N)
    size = split_size(length - begin, SPLIT, SPLITS)
    split = tl.arange(0, SPLITS)
    heads = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    live = heads < KV_HEADS * GROUP
    made = live[:, None] & (begin + split * size < length)[None, :]
    dims = tl.arange(0, BLOCK_D)
    real = dims < HEAD_DIM
    part = ((row * queries + query) * KV_HEADS * GROUP + heads).to(tl.int64)[:, None] * splits + split[None, :]
    tops = tl.load(tops_in + part * 2, mask=made, other=float("-inf"))
    totals = tl.load(tops_in + part * 2 + 1, mask=made, other=0)
    places = part[:, :, None] * HEAD_DIM + dims[None, None, :]
    sums = tl.load(sums_in + places, mask=made[:, :, None] & real[None, None, :], other=0)
    top = tl.max(tops, 1)
    weights = tl.exp2(tops - tl.where(top == float("-inf"), 0.0, top)[:, None])
    scale = 1.0
    if FLOAT8 > 0:
        scale = tl.load(value_scales + heads // GROUP, mask=live, other=1)
    sink = top
    if SINKS:
        sink = tl.load(sinks + heads, mask=live, other=0)
    merged = tl.sum(sums * weights[:, :, None], 1)
    mean = cast(mean_of(merged, top, tl.sum(totals * weights, 1), sink, scale, SINKS), out.dtype.element_ty)
    at = (first + query).to(tl.int64) * out_token + heads[:, None] * HEAD_DIM + dims[None, :]
    tl.store(out + at, mean, mask=live[:, None] & real[None, :])
