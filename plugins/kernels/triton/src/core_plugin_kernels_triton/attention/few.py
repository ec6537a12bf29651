"""Attention of rows with few tokens (one, or one and drafts): the context in splits, then the splits put together.

How a row is split depends on its own lengths and the layer alone, so what a row gives does not depend on its batch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from core_plugin_kernels_triton.attention.form import Form
from core_plugin_kernels_triton.attention.keys import attend_keys, lanes, mean_of
from core_plugin_kernels_triton.attention.merge import merge_kernel, span_of
from core_plugin_kernels_triton.attention.shared import joined, split_size
from core_plugin_kernels_triton.compat import cast
from core_plugin_kernels_triton.launch import launch


@triton.jit(
    do_not_specialize=["queries", "splits", "table_row"],
    do_not_specialize_on_alignment=["tables", "starts", "lengths"],
)
def split_kernel(
    q,
    kv,
    tables,
    starts,
    lengths,
    out,
    sums_out,
    tops_out,
    slopes,
    sinks,
    key_scales,
    value_scales,
    inner,
    outer,
    q_token,
    q_head,
    out_token,
    kv_block,
    kv_half,
    kv_token,
    kv_head,
    table_row,
    queries,
    splits,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    CHUNK: tl.constexpr,
    CAPPED: tl.constexpr,
    ALIBI: tl.constexpr,
    FLOAT8: tl.constexpr,
    SINKS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLIT: tl.constexpr,
    SPLITS: tl.constexpr,
    WHOLE: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """One split of one row, with all heads that share one kv head. `WHOLE`: no row ever has a second split.

    `TOGETHER`: rows whose shared splits are computed by the first one's program; 1: each row computes its own.
    """
    row = tl.program_id(0)
    head = tl.program_id(1)
    split = tl.program_id(2)
    QUERIES: tl.constexpr = BLOCK_M // GROUP
    first = tl.load(starts + row)
    count = tl.load(starts + row + 1) - first
    length = tl.load(lengths + row)
    least, begin = span_of(length - count, WINDOW, CHUNK, BLOCK_N)
    size = split_size(length - begin, SPLIT, SPLITS)
    begin += split * size
    if (count > QUERIES) | (count == 0) | (begin >= length):
        return
    live, mine, tokens, heads, places = lanes(first, count, length, 0, head, QUERIES, GROUP, BLOCK_M)
    rows = row + mine * 0
    if TOGETHER > 1:
        leader = row // TOGETHER * TOGETHER
        m = tl.arange(0, BLOCK_M)
        others = leader + m // GROUP
        here = joined(
            *(tables, starts, lengths, tl.num_programs(0), leader, others, split, table_row),
            *(BLOCK_SIZE, SPLIT, SPLITS),
        )
        here = here & (m < TOGETHER * GROUP)
        is_joined = tl.sum((here & (others == row)).to(tl.int32), 0) > 0
        if is_joined & (row != leader):
            return
        live = tl.where(is_joined, here, live)
        rows = tl.where(is_joined, others, rows)
        mine = tl.where(is_joined, 0, mine)
        tokens = tl.where(is_joined, tl.load(starts + others, mask=here, other=0).to(tl.int64), tokens)
        places = tl.where(is_joined, tl.load(lengths + others, mask=here, other=0) - 1, places)
    dims = tl.arange(0, BLOCK_D)
    there = live[:, None] & (dims < HEAD_DIM)[None, :]
    q_tile = tl.load(q + tokens[:, None] * q_token + heads[:, None] * q_head + dims[None, :], mask=there, other=0)
    steep = places.to(tl.float32)
    if ALIBI > 0:
        steep = tl.load(slopes + heads, mask=live, other=0)
    if FLOAT8 > 0:
        inner = inner * tl.load(key_scales + head)
    keys = kv + head * kv_head
    sums, top, total = attend_keys(
        q_tile,
        places,
        least,
        begin,
        tl.minimum(begin + size, length),
        begin,
        begin,
        tables + row.to(tl.int64) * table_row,
        keys,
        keys + kv_half,
        steep,
        inner,
        outer,
        kv_block,
        kv_token,
        HEAD_DIM,
        BLOCK_SIZE,
        WINDOW,
        CHUNK,
        CAPPED,
        ALIBI,
        FLOAT8,
        BLOCK_N,
        False,
    )
    if WHOLE:
        scale = 1.0
        if FLOAT8 > 0:
            scale = tl.load(value_scales + head)
        sink = places.to(tl.float32)
        if SINKS:
            sink = tl.load(sinks + heads, mask=live, other=0)
        mean = cast(mean_of(sums, top, total, sink, scale, SINKS), out.dtype.element_ty)
        tl.store(out + tokens[:, None] * out_token + heads[:, None] * HEAD_DIM + dims[None, :], mean, mask=there)
    else:
        part = ((rows * queries + mine) * KV_HEADS * GROUP + heads).to(tl.int64) * splits + split
        tl.store(sums_out + part[:, None] * HEAD_DIM + dims[None, :], sums, mask=there)
        tl.store(tops_out + part * 2, top, mask=live)
        tl.store(tops_out + part * 2 + 1, total, mask=live)


@launch(
    "Tensor q, Tensor kv, Tensor tables, Tensor starts, Tensor lengths, Tensor(a!) out, Tensor(b!) sums, "
    "Tensor(c!) tops, Tensor? slopes, Tensor? sinks, Tensor key_scales, Tensor value_scales, float inner, float outer, "
    "int queries, int longest, int[] form"
)
def attend_few(
    q: Tensor,
    kv: Tensor,
    tables: Tensor,
    starts: Tensor,
    lengths: Tensor,
    out: Tensor,
    sums: Tensor,
    tops: Tensor,
    slopes: Tensor | None,
    sinks: Tensor | None,
    key_scales: Tensor,
    value_scales: Tensor,
    inner: float,
    outer: float,
    queries: int,
    longest: int,
    form: Form,
) -> None:
    """Write the attention of all rows with up to `form.few` tokens to `out (tokens, heads, head_dim)`.

    Args:
        sums, tops: Memory to work in, as `memory` gives it.
        queries: No such row has more tokens in the step.
        longest: No such row has more tokens in the cache.

    Others are those of `attend_prompts`.
    """
    f, rows = Form(*form), lengths.shape[0]
    splits = f.splits_of(longest)
    same = {
        "GROUP": f.group,
        "KV_HEADS": f.kv_heads,
        "HEAD_DIM": f.dim,
        "BLOCK_D": f.width,
        "WINDOW": f.window,
        "CHUNK": f.chunk,
        "FLOAT8": f.float8,
        "SINKS": int(sinks is not None),
        "BLOCK_N": f.few_n,
        "SPLIT": f.split,
        "SPLITS": f.splits,
    }
    split_kernel[rows, f.kv_heads, splits](
        q,
        kv,
        tables,
        starts,
        lengths,
        out,
        sums,
        tops,
        slopes,
        sinks,
        key_scales,
        value_scales,
        inner,
        outer,
        q.stride(0),
        q.stride(1),
        out.stride(0),
        kv.stride(0),
        kv.stride(1),
        kv.stride(2),
        kv.stride(3),
        tables.stride(0),
        queries,
        splits,
        BLOCK_SIZE=f.block_size,
        CAPPED=f.capped,
        ALIBI=f.alibi,
        BLOCK_M=f.few_m,
        WHOLE=f.whole,
        TOGETHER=f.together,
        num_warps=f.few_warps,
        num_stages=f.few_stages,
        **same,
    )
    if not f.whole:
        merge_kernel[rows * queries, -(-f.kv_heads * f.group // f.merged)](
            sums,
            tops,
            starts,
            lengths,
            out,
            sinks,
            value_scales,
            out.stride(0),
            queries,
            splits,
            FEW=f.few,
            HEADS=f.merged,
            num_warps=4,
            **same,
        )


def memory(q: Tensor, queries: int, longest: int, form: Form) -> tuple[Tensor, Tensor]:
    """Return memory for the splits of so many queries: sums of values, and scores with the sums of their powers."""
    places = (queries, form.kv_heads * form.group, 0 if form.whole else form.splits_of(longest))
    return q.new_empty(*places, form.dim, dtype=torch.float32), q.new_empty(*places, 2, dtype=torch.float32)
