"""Absorbed latent attention: all heads of a query meet one latent and one rotated key of each position.

A tile is some heads of one query. Scores are logarithms of base 2. How a row is split depends on its
own length alone, so what a row gives does not depend on its batch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from core_plugin_kernels_triton.attention.keys import cache_offsets, load_stored
from core_plugin_kernels_triton.attention.prompts import row_of
from core_plugin_kernels_triton.attention.shared import split_size
from core_plugin_kernels_triton.compat import cast, dot
from core_plugin_kernels_triton.latent.expand import is_expanded
from core_plugin_kernels_triton.latent.form import FEW, LatentForm
from core_plugin_kernels_triton.latent.merge import latent_merge_kernel
from core_plugin_kernels_triton.launch import launch


@triton.jit
def attend_latents(
    q,
    q_rope,
    place,
    begin,
    end,
    table,
    picked,
    kv,
    scale,
    block_stride,
    token_stride,
    LATENT_DIM: tl.constexpr,
    ROPE_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    FLOAT8: tl.constexpr,
    PICKED: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Attend to the keys `begin` to `end - 1` of a row, or of a list of its positions (-1: none) with `PICKED`.

    Args:
        q, q_rope: `(M, latent)`, `(M, rope)`.
        place: Position of the query.

    Returns:
        `(M, latent)` sums, `(M,)` greatest scores, and `(M,)` sums of `2 ** (score - greatest)`, in float32.
    """
    BLOCK_M: tl.constexpr = q.shape[0]
    latent = tl.arange(0, q.shape[1])
    rope = tl.arange(0, q_rope.shape[1])
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    sums = tl.zeros([BLOCK_M, q.shape[1]], tl.float32)
    for start in range(begin, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < end
        if PICKED:
            n = tl.load(picked + n, mask=live, other=-1)
            live = n >= 0
            n = tl.where(live, n, 0)
        blocks = tl.load(table + n // BLOCK_SIZE, mask=live, other=0)
        at = kv + cache_offsets(blocks, n, block_stride, token_stride, BLOCK_SIZE)
        there = live[:, None] & (latent < LATENT_DIM)[None, :]
        c = load_stored(at[:, None] + latent[None, :], there, q.dtype, FLOAT8)
        turned = live[None, :] & (rope < ROPE_DIM)[:, None]
        r = load_stored(at[None, :] + LATENT_DIM + rope[:, None], turned, q.dtype, FLOAT8)
        scores = dot(q, tl.trans(c), tl.zeros([BLOCK_M, BLOCK_N], tl.float32))
        scores = dot(q_rope, r, scores) * scale
        scores = tl.where((live & (n <= place))[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)  # a query that has seen nothing yet
        shares = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(top - base)
        total = total * shrink + tl.sum(shares, 1)
        sums = dot(cast(shares, q.dtype), c, sums * shrink[:, None])
        top = higher
    return sums, top, total


@triton.jit(
    do_not_specialize=["rows", "table_row", "splits", "queries"],
    do_not_specialize_on_alignment=["tables", "starts", "lengths", "picked"],
)
def latent_kernel(
    q,
    q_rope,
    kv,
    tables,
    starts,
    lengths,
    picked,
    out,
    sums_out,
    tops_out,
    rows,
    scale,
    q_token,
    q_head,
    rope_token,
    rope_head,
    kv_block,
    kv_token,
    table_row,
    queries,
    splits,
    KIND: tl.constexpr,
    PICKS: tl.constexpr,
    HEADS: tl.constexpr,
    LATENT_DIM: tl.constexpr,
    ROPE_DIM: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    FLOAT8: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLIT: tl.constexpr,
    SPLITS: tl.constexpr,
    MOST: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    FEWEST: tl.constexpr,
):
    """Some heads of one query.

    `KIND`: 0: of a row of more than `MOST` tokens that is not expanded, over all keys. 1: of another row, over one
    split of them. 2: of any row, over the query's picks.
    """
    program = tl.program_id(0)
    heads = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    split = tl.program_id(2)
    if KIND == 1:
        row = program // queries
        mine = program % queries
    else:
        row = row_of(program, starts, rows, 1)
        mine = program - tl.load(starts + row) - row
    first = tl.load(starts + row)
    count = tl.load(starts + row + 1) - first
    length = tl.load(lengths + row)
    LEFT_OUT: tl.constexpr = MOST if KIND == 0 else 0
    if (mine >= count) | (count <= LEFT_OUT):
        return
    if KIND == 0:
        expanded = is_expanded(count, length, LATENT_DIM, KEY_DIM, VALUE_DIM, FEWEST)
        if expanded:
            return
    place = length - count + mine
    token = (first + mine).to(tl.int64)
    begin = place * 0
    end = place + 1
    if KIND == 1:
        size = split_size(length, SPLIT, SPLITS)
        begin = split * size
        end = tl.minimum(begin + size, length)
        if (count > MOST) | (begin >= length):
            return
    chosen = starts
    if KIND == 2:
        chosen = picked + token * PICKS
        end = place * 0 + PICKS
    latent = tl.arange(0, BLOCK_L)
    rope = tl.arange(0, BLOCK_R)
    live = heads < HEADS
    there = live[:, None] & (latent < LATENT_DIM)[None, :]
    turned = live[:, None] & (rope < ROPE_DIM)[None, :]
    q_tile = tl.load(q + token * q_token + heads[:, None] * q_head + latent[None, :], mask=there, other=0.0)
    r_tile = tl.load(q_rope + token * rope_token + heads[:, None] * rope_head + rope[None, :], mask=turned, other=0.0)
    sums, top, total = attend_latents(
        q_tile,
        r_tile,
        place,
        begin,
        end,
        tables + row.to(tl.int64) * table_row,
        chosen,
        kv,
        scale,
        kv_block,
        kv_token,
        LATENT_DIM,
        ROPE_DIM,
        BLOCK_SIZE,
        FLOAT8,
        KIND == 2,
        BLOCK_N,
    )
    if KIND == 1:
        part = ((row * queries + mine).to(tl.int64) * HEADS + heads) * splits + split
        tl.store(sums_out + part[:, None] * LATENT_DIM + latent[None, :], sums, mask=there)
        tl.store(tops_out + part * 2, top, mask=live)
        tl.store(tops_out + part * 2 + 1, total, mask=live)
    else:
        mean = cast(sums / tl.where(total == 0, 1.0, total)[:, None], out.dtype.element_ty)
        tl.store(out + (token * HEADS + heads)[:, None] * LATENT_DIM + latent[None, :], mean, mask=there)


@launch(
    "Tensor q, Tensor q_rope, Tensor kv, Tensor tables, Tensor starts, Tensor lengths, Tensor? picked, "
    "Tensor(a!) out, Tensor(b!) sums, Tensor(c!) tops, float scale, bool many, int queries, int longest, int[] form"
)
def launch_latent(
    q: Tensor,
    q_rope: Tensor,
    kv: Tensor,
    tables: Tensor,
    starts: Tensor,
    lengths: Tensor,
    picked: Tensor | None,
    out: Tensor,
    sums: Tensor,
    tops: Tensor,
    scale: float,
    many: bool,
    queries: int,
    longest: int,
    form: LatentForm,
) -> None:
    """Write what queries gather of the latents to `out (tokens, heads, latent_dim)`.

    Args:
        q, q_rope: `(tokens, heads, latent_dim)`, `(tokens, heads, rope_dim)`, heads and tokens at any stride.
        kv: `(blocks, block_size, latent_dim + rope_dim)`.
        picked: `(tokens, picks)` int32, -1 for none; None: all positions.
        sums, tops: Memory to work in, as `memory` gives it.
        many: Whether some row with more than `FEW` tokens is not expanded.
        queries, longest: As in `Work`, for rows of up to `FEW` tokens.
    """
    f, rows = LatentForm(*form), lengths.shape[0]
    splits = f.splits_of(longest) if longest else 1
    tiles = -(-f.heads // f.m)
    same = {
        "HEADS": f.heads,
        "LATENT_DIM": f.latent_dim,
        "BLOCK_L": f.latent_width,
        "SPLIT": f.split,
        "SPLITS": f.splits,
        "MOST": FEW,
    }

    def attend(kind: int, grid: tuple[int, ...]) -> None:
        latent_kernel[grid](
            *(q, q_rope, kv, tables, starts, lengths, picked, out, sums, tops, rows, scale),
            *(q.stride(0), q.stride(1), q_rope.stride(0), q_rope.stride(1), kv.stride(0), kv.stride(1)),
            *(tables.stride(0), queries, splits),
            KIND=kind,
            PICKS=0 if picked is None else picked.shape[1],
            ROPE_DIM=f.rope_dim,
            BLOCK_R=f.rope_width,
            BLOCK_SIZE=f.block_size,
            FLOAT8=f.float8,
            BLOCK_M=f.m,
            BLOCK_N=f.n,
            KEY_DIM=f.key_dim,
            VALUE_DIM=f.value_dim,
            FEWEST=f.fewest,
            num_warps=f.warps,
            num_stages=f.stages,
            **same,
        )

    if picked is not None:
        attend(2, (q.shape[0] + rows, tiles, 1))
        return
    if many:
        attend(0, (q.shape[0] + rows, tiles, 1))
    if queries:
        attend(1, (rows * queries, tiles, splits))
        latent_merge_kernel[rows * queries, f.heads](
            sums, tops, starts, lengths, out, queries, splits, num_warps=4, **same
        )


def memory(q: Tensor, queries: int, longest: int, form: LatentForm) -> tuple[Tensor, Tensor]:
    """Return memory for the splits of so many queries: sums of latents, and scores with the sums of their powers."""
    places = (queries, form.heads, form.splits_of(longest) if queries else 0)
    return q.new_empty(*places, form.latent_dim, dtype=torch.float32), q.new_empty(*places, 2, dtype=torch.float32)
