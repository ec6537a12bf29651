"""Attention of rows with many tokens: prompts, and pieces of prompts."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from core_plugin_kernels_triton.attention.form import Form
from core_plugin_kernels_triton.attention.keys import attend_keys, first_key, lanes, mean_of
from core_plugin_kernels_triton.compat import cast
from core_plugin_kernels_triton.launch import launch


@triton.jit
def row_of(tile, starts, rows, QUERIES: tl.constexpr):
    """Return the row that a tile belongs to: the last one whose first tile is no later.

    The first tile of row r is `starts[r] // QUERIES + r`, which leaves each row as many as it needs, and a spare one.
    """
    low = rows * 0
    high = low + rows
    while high - low > 1:
        middle = (low + high) // 2
        begun = tl.load(starts + middle) // QUERIES + middle <= tile
        low = tl.where(begun, middle, low)
        high = tl.where(begun, high, middle)
    return low


# Numbers and addresses that change from step to step must not have it compiled again.
@triton.jit(do_not_specialize=["rows", "table_row"], do_not_specialize_on_alignment=["tables", "starts", "lengths"])
def prompt_kernel(
    q,
    kv,
    tables,
    starts,
    lengths,
    out,
    slopes,
    sinks,
    key_scales,
    value_scales,
    rows,
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
    FEW: tl.constexpr,
):
    """One tile of a row's queries, with all heads that share one kv head. Rows of up to `FEW` tokens are left out."""
    QUERIES: tl.constexpr = BLOCK_M // GROUP
    # The last tiles of a row see the most keys: they come first, all heads of each, so that no long one ends alone.
    tile = tl.num_programs(0) // KV_HEADS - 1 - tl.program_id(0) // KV_HEADS
    head = tl.program_id(0) % KV_HEADS
    row = row_of(tile, starts, rows, QUERIES)
    first = tl.load(starts + row)
    count = tl.load(starts + row + 1) - first
    query = (tile - first // QUERIES - row) * QUERIES
    if (count <= FEW) | (query >= count):
        return
    length = tl.load(lengths + row)
    live, _, tokens, heads, places = lanes(first, count, length, query, head, QUERIES, GROUP, BLOCK_M)
    dims = tl.arange(0, BLOCK_D)
    there = live[:, None] & (dims < HEAD_DIM)[None, :]
    q_tile = tl.load(q + tokens[:, None] * q_token + heads[:, None] * q_head + dims[None, :], mask=there, other=0)
    steep = places.to(tl.float32)
    if ALIBI > 0:
        steep = tl.load(slopes + heads, mask=live, other=0)
    scale = 1.0
    if FLOAT8 > 0:
        inner = inner * tl.load(key_scales + head)
        scale = tl.load(value_scales + head)
    place = length - count + query
    least = first_key(place, WINDOW, CHUNK)
    keys = kv + head * kv_head
    sums, top, total = attend_keys(
        q_tile,
        places,
        least,
        least // BLOCK_N * BLOCK_N,
        tl.minimum(place + QUERIES, length),
        first_key(tl.minimum(place + QUERIES, length) - 1, WINDOW, CHUNK),
        place + 1,
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
        True,
    )
    sink = places.to(tl.float32)
    if SINKS:
        sink = tl.load(sinks + heads, mask=live, other=0)
    mean = cast(mean_of(sums, top, total, sink, scale, SINKS), out.dtype.element_ty)
    tl.store(out + tokens[:, None] * out_token + heads[:, None] * HEAD_DIM + dims[None, :], mean, mask=there)


@launch(
    "Tensor q, Tensor kv, Tensor tables, Tensor starts, Tensor lengths, Tensor(a!) out, Tensor? slopes, Tensor? sinks, "
    "Tensor key_scales, Tensor value_scales, float inner, float outer, int[] form"
)
def attend_prompts(
    q: Tensor,
    kv: Tensor,
    tables: Tensor,
    starts: Tensor,
    lengths: Tensor,
    out: Tensor,
    slopes: Tensor | None,
    sinks: Tensor | None,
    key_scales: Tensor,
    value_scales: Tensor,
    inner: float,
    outer: float,
    form: Form,
) -> None:
    """Write the attention of all rows with more than `form.few` tokens to `out (tokens, heads, head_dim)`.

    Args:
        q: `(tokens, heads, head_dim)`, heads and tokens at any stride.
        kv: `(blocks, 2, block_size, kv_heads, head_dim)`, this step's keys and values written.
        tables: `(rows, columns)` int32 blocks.
        starts, lengths: `(rows + 1,)`, `(rows,)` int32, as in `BatchView`.
        slopes, sinks: `(heads,)` float32.
        key_scales, value_scales: `(kv_heads,)` float32, of a float8 cache.
        inner, outer: Factor of the products, and the cap.
    """
    f, rows = Form(*form), lengths.shape[0]
    grid = ((q.shape[0] // f.queries + rows) * f.kv_heads,)
    prompt_kernel[grid](
        q,
        kv,
        tables,
        starts,
        lengths,
        out,
        slopes,
        sinks,
        key_scales,
        value_scales,
        rows,
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
        GROUP=f.group,
        KV_HEADS=f.kv_heads,
        HEAD_DIM=f.dim,
        BLOCK_D=f.width,
        BLOCK_SIZE=f.block_size,
        WINDOW=f.window,
        CHUNK=f.chunk,
        CAPPED=f.capped,
        ALIBI=f.alibi,
        FLOAT8=f.float8,
        SINKS=int(sinks is not None),
        BLOCK_M=f.prompt_m,
        BLOCK_N=f.prompt_n,
        FEW=f.few,
        num_warps=f.prompt_warps,
        num_stages=f.prompt_stages,
    )
