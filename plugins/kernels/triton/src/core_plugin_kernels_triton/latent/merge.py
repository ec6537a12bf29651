"""How the splits of rows with few tokens are put together."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.attention.shared import split_size
from core_plugin_kernels_triton.compat import cast


@triton.jit(do_not_specialize=["queries", "splits"], do_not_specialize_on_alignment=["starts", "lengths"])
def latent_merge_kernel(
    sums_in,
    tops_in,
    starts,
    lengths,
    out,
    queries,
    splits,
    HEADS: tl.constexpr,
    LATENT_DIM: tl.constexpr,
    BLOCK_L: tl.constexpr,
    SPLIT: tl.constexpr,
    SPLITS: tl.constexpr,
    MOST: tl.constexpr,
):
    """Put the splits of one query and head together. Sums are always of `SPLITS` terms, so their order is the same."""
    row = tl.program_id(0) // queries
    query = tl.program_id(0) % queries
    head = tl.program_id(1)
    first = tl.load(starts + row)
    count = tl.load(starts + row + 1) - first
    if (count > MOST) | (query >= count):
        return
    length = tl.load(lengths + row)
    split = tl.arange(0, SPLITS)
    made = split * split_size(length, SPLIT, SPLITS) < length
    latent = tl.arange(0, BLOCK_L)
    real = latent < LATENT_DIM
    part = ((row * queries + query).to(tl.int64) * HEADS + head) * splits + split
    tops = tl.load(tops_in + part * 2, mask=made, other=float("-inf"))
    totals = tl.load(tops_in + part * 2 + 1, mask=made, other=0)
    parts = tl.load(sums_in + part[:, None] * LATENT_DIM + latent[None, :], mask=made[:, None] & real[None, :], other=0)
    weights = tl.exp2(tops - tl.max(tops, 0))
    mean = tl.sum(parts * weights[:, None], 0) / tl.sum(totals * weights, 0)
    at = ((first + query).to(tl.int64) * HEADS + head) * LATENT_DIM + latent
    tl.store(out + at, cast(mean, out.dtype.element_ty), mask=real)
