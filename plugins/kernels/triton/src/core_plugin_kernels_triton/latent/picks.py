"""Positions that latent attention is limited to: scores of index keys by a kernel, and torch's choice of the best."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from core.api.attention import AttentionContext, PickSite
from core_plugin_kernels_triton.attention.form import FLOAT8, power_of_two
from core_plugin_kernels_triton.attention.keys import cache_offsets, load_stored
from core_plugin_kernels_triton.attention.plan import TritonPlan
from core_plugin_kernels_triton.compat import cast, dot
from core_plugin_kernels_triton.latent.form import tiles
from core_plugin_kernels_triton.latent.store import store_rows
from core_plugin_kernels_triton.launch import launch

NONE = -1
"""Stands for no position."""

MOST_SCORES = 2**27
"""Scores that are there at once: bounds the queries of a prompt that are scored together."""


@triton.jit(
    do_not_specialize=["rows", "begin", "count", "longest", "table_row"],
    do_not_specialize_on_alignment=["tables", "starts", "lengths"],
)
def score_kernel(
    q,
    weights,
    kv,
    tables,
    starts,
    lengths,
    out,
    rows,
    begin,
    count,
    longest,
    scale,
    q_token,
    q_head,
    weight_token,
    kv_block,
    kv_token,
    table_row,
    HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    FLOAT8: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Write the scores of one query and a tile of positions; -inf where it sees none.

    Queries are those from number `begin` of the step on, `count` of them.
    """
    low = rows * 0
    high = low + rows
    token = begin + tl.program_id(0)
    while high - low > 1:  # the last row that begins no later
        middle = (low + high) // 2
        begun = tl.load(starts + middle) <= token
        low = tl.where(begun, middle, low)
        high = tl.where(begun, high, middle)
    length = tl.load(lengths + low)
    place = length - tl.load(starts + low + 1) + token
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    live = n <= place
    scores = tl.full([BLOCK_N], float("-inf"), tl.float32)
    if tl.program_id(1) * BLOCK_N <= place:
        dims = tl.arange(0, BLOCK_D)
        heads = tl.arange(0, BLOCK_H)
        blocks = tl.load(tables + low.to(tl.int64) * table_row + n // BLOCK_SIZE, mask=live, other=0)
        at = kv + cache_offsets(blocks, n, kv_block, kv_token, BLOCK_SIZE)
        keys = load_stored(
            at[None, :] + dims[:, None], live[None, :] & (dims < KEY_DIM)[:, None], q.dtype.element_ty, FLOAT8
        )
        wide = token.to(tl.int64)
        there = (heads < HEADS)[:, None] & (dims < KEY_DIM)[None, :]
        given = tl.load(q + wide * q_token + heads[:, None] * q_head + dims[None, :], mask=there, other=0.0)
        met = dot(given, keys, tl.zeros([BLOCK_H, BLOCK_N], tl.float32)) * scale
        share = cast(tl.load(weights + wide * weight_token + heads, mask=heads < HEADS, other=0.0), tl.float32)
        scores = tl.where(live, tl.sum(tl.maximum(met, 0.0) * share[:, None], 0), float("-inf"))
    tl.store(out + tl.program_id(0).to(tl.int64) * longest + n, scores, mask=n < longest)


class TritonPicker:
    """Chooses positions for the latent layers of a model."""

    def __init__(self, site: PickSite, ctx: AttentionContext) -> None:
        self._site, self._float8 = site, FLOAT8.get(ctx.kv_dtype, 0)

    def write(self, key: Tensor, kv: Tensor, plan: TritonPlan) -> None:
        """Store index keys `key (tokens, key_dim)` at the plan's slots."""
        if len(key):
            store_rows(key, kv, plan.slots, 0, self._float8)

    def forward(self, q: Tensor, weights: Tensor, kv: Tensor, plan: TritonPlan) -> Tensor | None:
        """`q (tokens, heads, key_dim)`, `weights (tokens, heads)` -> `(tokens, picks)` int32, or None."""
        longest, picks = int(plan.seq_lens.max(initial=0)), self._site.picks
        if longest <= picks:
            return None
        q = q if q.stride(2) == 1 else q.contiguous()
        weights = weights if weights.stride(1) == 1 else weights.contiguous()
        picked = torch.empty(len(q), picks, dtype=torch.int32, device=q.device)
        together = max(1, MOST_SCORES // longest)
        for begin in range(0, len(q), together):
            scores = torch.empty(min(together, len(q) - begin), longest, dtype=torch.float32, device=q.device)
            where = (plan.tables, plan.starts, plan.lengths)
            launch_scores(q, weights, kv, *where, scores, begin, self._site.scale, self._float8)
            best, places = scores.topk(picks, dim=-1, sorted=False)
            picked[begin : begin + len(scores)] = places.int().masked_fill_(best == -torch.inf, NONE)
        return picked


@launch(
    "Tensor q, Tensor weights, Tensor kv, Tensor tables, Tensor starts, Tensor lengths, Tensor(a!) out, int begin, "
    "float scale, int float8"
)
def launch_scores(
    q: Tensor,
    weights: Tensor,
    kv: Tensor,
    tables: Tensor,
    starts: Tensor,
    lengths: Tensor,
    out: Tensor,
    begin: int,
    scale: float,
    float8: int,
) -> None:
    """Write the scores of queries from number `begin` on to `out (queries, positions)`."""
    (_, heads, dim), (count, longest) = q.shape, out.shape
    tile = tiles(q.device)["scores"]
    score_kernel[count, -(-longest // tile["n"])](
        *(q, weights, kv, tables, starts, lengths, out, lengths.shape[0], begin, count, longest, scale),
        *(q.stride(0), q.stride(1), weights.stride(0), kv.stride(0), kv.stride(1), tables.stride(0)),
        HEADS=heads,
        KEY_DIM=dim,
        BLOCK_H=max(16, power_of_two(heads)),
        BLOCK_D=max(16, power_of_two(dim)),
        BLOCK_SIZE=kv.shape[1],
        FLOAT8=float8,
        BLOCK_N=tile["n"],
        num_warps=tile["warps"],
        num_stages=tile["stages"],
    )
