"""Expanded latent attention: keys and values of each head are made of latents, a piece of a row's context at a time.

Of each head, a query and a position that it sees take `2 * latent_dim + rope_dim` products in the absorbed form, and
`key_dim + rope_dim + value_dim` in this one. To move a new token's query to the latents and its result back, or to
expand one latent, takes `latent_dim * (key_dim + value_dim)`. A row is expanded where that makes fewer products
altogether, and where it has new tokens enough to fill tiles.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from core_plugin_kernels_triton.attention.form import power_of_two
from core_plugin_kernels_triton.attention.keys import cache_offsets, load_stored
from core_plugin_kernels_triton.compat import cast, dot
from core_plugin_kernels_triton.latent.form import LatentForm
from core_plugin_kernels_triton.launch import launch


@triton.jit
def is_expanded(
    count,
    length,
    LATENT_DIM: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    FEWEST: tl.constexpr,
):
    """Return whether a row of `count` new tokens, `length` in the cache, is expanded."""
    new = count.to(tl.int64)
    cached = length.to(tl.int64) - new
    pairs = new * cached + new * (new + 1) // 2
    saved = pairs * (2 * LATENT_DIM - KEY_DIM - VALUE_DIM)
    return (count >= FEWEST) & (saved > cached * (LATENT_DIM * (KEY_DIM + VALUE_DIM)))


def expanded_rows(counts: np.ndarray, lengths: np.ndarray, form: LatentForm) -> np.ndarray:
    """Return the numbers of the rows of a step that are expanded: what `is_expanded` says on the device."""
    new = counts.astype(np.int64)
    cached = lengths.astype(np.int64) - new
    pairs = new * cached + new * (new + 1) // 2
    saved = pairs * (2 * form.latent_dim - form.key_dim - form.value_dim)
    more = cached * (form.latent_dim * (form.key_dim + form.value_dim))
    return np.flatnonzero((new >= form.fewest) & (saved > more))


@triton.jit(do_not_specialize=["begin", "count"], do_not_specialize_on_alignment=["table"])
def open_kernel(
    kv,
    table,
    out,
    begin,
    count,
    kv_block,
    kv_token,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    FLOAT8: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Copy what `ROWS` of the `count` positions from `begin` on of a row keep, `WIDTH` numbers each."""
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mine = i < count
    n = begin + i
    place = tl.arange(0, BLOCK)
    there = mine[:, None] & (place < WIDTH)[None, :]
    blocks = tl.load(table + n // BLOCK_SIZE, mask=mine, other=0)
    at = kv + cache_offsets(blocks, n, kv_block, kv_token, BLOCK_SIZE)
    x = load_stored(at[:, None] + place[None, :], there, out.dtype.element_ty, FLOAT8)
    tl.store(out + i.to(tl.int64)[:, None] * WIDTH + place[None, :], x, mask=there)


@triton.jit(do_not_specialize=["first", "count", "length", "begin", "end", "key_head", "value_head"])
def expanded_kernel(
    q,
    q_rope,
    keys,
    turned,
    values,
    out,
    sums_kept,
    tops_kept,
    first,
    count,
    length,
    begin,
    end,
    scale,
    q_token,
    q_head,
    rope_token,
    rope_head,
    key_head,
    value_head,
    turned_token,
    HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    ROPE_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BEGUN: tl.constexpr,
    DONE: tl.constexpr,
):
    """Some queries of one head, over the positions `begin` to `end - 1` of their row.

    `BEGUN`: positions before were gone through, and what these gave was kept. `DONE`: these are the last ones.
    """
    query = tl.program_id(0) * BLOCK_M
    mine = query + tl.arange(0, BLOCK_M)
    head = tl.program_id(1).to(tl.int64)
    live = mine < count
    places = tl.where(live, length - count + mine, -1)
    token = (first + mine).to(tl.int64)
    keyed = tl.arange(0, BLOCK_K)
    rope = tl.arange(0, BLOCK_R)
    valued = tl.arange(0, BLOCK_V)
    there = live[:, None] & (keyed < KEY_DIM)[None, :]
    q_tile = tl.load(q + token[:, None] * q_token + head * q_head + keyed[None, :], mask=there, other=0.0)
    there = live[:, None] & (rope < ROPE_DIM)[None, :]
    r_tile = tl.load(q_rope + token[:, None] * rope_token + head * rope_head + rope[None, :], mask=there, other=0.0)
    kept = mine.to(tl.int64) * HEADS + head
    real = live[:, None] & (valued < VALUE_DIM)[None, :]
    if BEGUN:
        top = tl.load(tops_kept + kept * 2, mask=live, other=float("-inf"))
        total = tl.load(tops_kept + kept * 2 + 1, mask=live, other=0.0)
        sums = tl.load(sums_kept + kept[:, None] * VALUE_DIM + valued[None, :], mask=real, other=0.0)
    else:
        top = tl.full([BLOCK_M], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK_M], tl.float32)
        sums = tl.zeros([BLOCK_M, BLOCK_V], tl.float32)
    last = tl.minimum(end, length - count + query + BLOCK_M)
    for start in range(begin, last, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        seen = n < last
        at = (n - begin).to(tl.int64)
        here = seen[None, :] & (keyed < KEY_DIM)[:, None]
        k = tl.load(keys + head * key_head + at[None, :] * KEY_DIM + keyed[:, None], mask=here, other=0.0)
        here = seen[None, :] & (rope < ROPE_DIM)[:, None]
        r = tl.load(turned + at[None, :] * turned_token + rope[:, None], mask=here, other=0.0)
        scores = dot(r_tile, r, dot(q_tile, k, tl.zeros([BLOCK_M, BLOCK_N], tl.float32))) * scale
        scores = tl.where(seen[None, :] & (n[None, :] <= places[:, None]), scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)  # a lane that is no query sees nothing
        shares = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(top - base)
        total = total * shrink + tl.sum(shares, 1)
        here = seen[:, None] & (valued < VALUE_DIM)[None, :]
        v = tl.load(values + head * value_head + at[:, None] * VALUE_DIM + valued[None, :], mask=here, other=0.0)
        sums = dot(cast(shares, q_tile.dtype), v, sums * shrink[:, None])
        top = higher
    if DONE:
        mean = cast(sums / tl.where(total == 0, 1.0, total)[:, None], out.dtype.element_ty)
        tl.store(out + (token * HEADS + head)[:, None] * VALUE_DIM + valued[None, :], mean, mask=real)
    else:
        tl.store(tops_kept + kept * 2, top, mask=live)
        tl.store(tops_kept + kept * 2 + 1, total, mask=live)
        tl.store(sums_kept + kept[:, None] * VALUE_DIM + valued[None, :], sums, mask=real)


@launch("Tensor kv, Tensor table, Tensor(a!) out, int begin, int[] form")
def launch_open(kv: Tensor, table: Tensor, out: Tensor, begin: int, form: LatentForm) -> None:
    """Copy what the positions from `begin` on of a row keep to `out (positions, latent_dim + rope_dim)`.

    Args:
        kv: `(blocks, block_size, latent_dim + rope_dim)`; bytes, for float8.
        table: `(columns,)` int32: the row's blocks.
    """
    f, (count, width) = LatentForm(*form), out.shape
    open_kernel[(-(-count // f.stored),)](
        *(kv, table, out, begin, count, kv.stride(0), kv.stride(1)),
        WIDTH=width,
        BLOCK=power_of_two(width),
        BLOCK_SIZE=f.block_size,
        FLOAT8=f.float8,
        ROWS=f.stored,
        num_warps=4,
    )


@launch(
    "Tensor q, Tensor q_rope, Tensor keys, Tensor turned, Tensor values, Tensor(a!) out, Tensor(b!) sums, "
    "Tensor(c!) tops, int first, int count, int length, int begin, float scale, int[] form"
)
def launch_expanded(
    q: Tensor,
    q_rope: Tensor,
    keys: Tensor,
    turned: Tensor,
    values: Tensor,
    out: Tensor,
    sums: Tensor,
    tops: Tensor,
    first: int,
    count: int,
    length: int,
    begin: int,
    scale: float,
    form: LatentForm,
) -> None:
    """Attend with the new tokens of one row to the positions from `begin` on; with the last of these, write to `out`.

    Args:
        q, q_rope: `(tokens, heads, key_dim)`, `(tokens, heads, rope_dim)`, heads and tokens at any stride.
        keys, values: `(heads, positions, key_dim)`, `(heads, positions, value_dim)`, dense.
        turned: `(positions, rope_dim)`, tokens at any stride.
        out: `(tokens, heads, value_dim)`.
        sums, tops: What is kept from piece to piece, `(count, heads, value_dim)` and `(count, heads, 2)` float32.
        first: The row's first token in the step.
        count, length: Its new tokens, and its tokens in the cache.
    """
    f, end = LatentForm(*form), begin + keys.shape[1]
    expanded_kernel[-(-count // f.wide_m), f.heads](
        *(q, q_rope, keys, turned, values, out, sums, tops, first, count, length, begin, end, scale),
        *(q.stride(0), q.stride(1), q_rope.stride(0), q_rope.stride(1)),
        *(keys.stride(0), values.stride(0), turned.stride(0)),
        HEADS=f.heads,
        KEY_DIM=f.key_dim,
        ROPE_DIM=f.rope_dim,
        VALUE_DIM=f.value_dim,
        BLOCK_K=f.key_width,
        BLOCK_R=f.rope_width,
        BLOCK_V=f.value_width,
        BLOCK_M=f.wide_m,
        BLOCK_N=f.wide_n,
        BEGUN=begin > 0,
        DONE=end == length,
        num_warps=f.wide_warps,
        num_stages=f.wide_stages,
    )


def attend_expanded(
    q: Tensor,
    q_rope: Tensor,
    key: Tensor,
    value: Tensor,
    kv: Tensor,
    table: Tensor,
    out: Tensor,
    row: tuple[int, int, int],
    scale: float,
    form: LatentForm,
) -> None:
    """Write the attention of one row to `out (tokens, heads, value_dim)`.

    Args:
        key, value: The up-projections, `(heads, key_dim, latent_dim)` and `(heads, latent_dim, value_dim)`.
        row: Its first token in the step, its new tokens, and its tokens in the cache.
        scale: Factor of the scores, times log2(e).

    Others are those of `launch_expanded`.
    """
    first, count, length = row
    kept = count if length > form.piece else 0
    sums = q.new_empty(kept, form.heads, form.value_dim, dtype=torch.float32)
    tops = q.new_empty(kept, form.heads, 2, dtype=torch.float32)
    for begin in range(0, length, form.piece):
        opened = q.new_empty(min(form.piece, length - begin), form.latent_dim + form.rope_dim)
        launch_open(kv, table, opened, begin, form)
        latents, turned = opened.split_with_sizes((form.latent_dim, form.rope_dim), dim=1)
        every = latents.expand(form.heads, *latents.shape)
        keys, values = torch.bmm(every, key.transpose(1, 2)), torch.bmm(every, value)
        launch_expanded(*(q, q_rope, keys, turned, values, out, sums, tops, first, count, length, begin, scale), form)
