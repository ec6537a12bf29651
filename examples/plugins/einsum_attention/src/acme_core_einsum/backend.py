"""Paged attention as two einsums per request.

A block of a layer's cache is `(kv_heads, 2, block_size, head_dim)`: what one head reads of a block lies together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from core.api import AttentionContext, AttentionSite, BatchView, KVLayout


@dataclass(frozen=True, slots=True)
class RowPlan:
    """One request's part of a step.

    Attributes:
        begin, end: Its tokens in the step.
        blocks: `(blocks,)` int64, its blocks in order.
        length: Tokens in its cache after this step's writes.
    """

    begin: int
    end: int
    blocks: Tensor
    length: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step: where each token's key and value go, and the requests.

    Attributes:
        blocks, offsets: `(tokens,)` int64, block and place in the block of each token.
    """

    blocks: Tensor
    offsets: Tensor
    rows: list[RowPlan]


class EinsumBackend:
    """Plans a step; makes layers."""

    def __init__(self, ctx: AttentionContext) -> None:
        self._ctx = ctx

    def kv_layout(self, site: AttentionSite) -> KVLayout:
        """Return blocks of `(kv_heads, 2, block_size, head_dim)`."""
        return KVLayout((site.num_kv_heads, 2, self._ctx.block_size, site.head_dim), self._ctx.kv_dtype)

    def plan(self, batch: BatchView) -> StepPlan:
        """Cut the batch into its requests."""
        size = self._ctx.block_size
        starts = batch.query_starts.tolist()
        rows = [
            RowPlan(starts[row], starts[row + 1], batch.block_tables[row, : -(-length // size)].long(), length)
            for row, length in enumerate(batch.seq_lens.tolist())
        ]
        return StepPlan(batch.slots.div(size, rounding_mode="floor"), batch.slots.remainder(size), rows)

    def layer(self, site: AttentionSite) -> EinsumLayer:
        """Return the attention of one layer."""
        return EinsumLayer(site, self._ctx)


class EinsumLayer:
    """Attention of one layer. Scores are float32, whatever the compute dtype is."""

    def __init__(self, site: AttentionSite, ctx: AttentionContext) -> None:
        self._site = site
        self._dtype = ctx.dtype
        self._kv_dtype = ctx.kv_dtype
        self._group = site.num_heads // site.num_kv_heads

    def write_kv(self, k: Tensor, v: Tensor, kv: Tensor, plan: StepPlan) -> None:
        """Store `k, v (tokens, kv_heads, head_dim)` at the plan's places."""
        kv[plan.blocks, :, 0, plan.offsets] = k.to(self._kv_dtype)
        kv[plan.blocks, :, 1, plan.offsets] = v.to(self._kv_dtype)

    def forward(self, q: Tensor, kv: Tensor, plan: StepPlan) -> Tensor:
        """Attend causally; `q (tokens, heads, head_dim)` -> `(tokens, heads * head_dim)`."""
        out = q.new_empty(q.shape)
        for row in plan.rows:
            out[row.begin : row.end] = self._attend(q[row.begin : row.end], kv, row)
        return out.view(q.shape[0], -1)

    def _attend(self, q: Tensor, kv: Tensor, row: RowPlan) -> Tensor:
        site = self._site
        # (blocks, kv_heads, 2, block_size, head_dim) -> (2, kv_heads, positions, head_dim)
        history = kv[row.blocks].permute(2, 1, 0, 3, 4).flatten(2, 3)[:, :, : row.length].to(self._dtype)
        grouped = q.view(-1, site.num_kv_heads, self._group, site.head_dim)
        scores = torch.einsum("qhgd,hkd->hgqk", grouped, history[0]).float() * site.scale
        if site.softcap is not None:
            scores = torch.tanh(scores / site.softcap) * site.softcap
        weights = scores.masked_fill(self._hidden(row, q.device), -torch.inf).softmax(-1).to(self._dtype)
        return torch.einsum("hgqk,hkd->qhgd", weights, history[1]).reshape(q.shape)

    def _hidden(self, row: RowPlan, device: torch.device) -> Tensor:
        """`(queries, keys)`: True where the key is in the query's future, or behind its window."""
        keys = torch.arange(row.length, device=device)
        queries = keys[row.length - (row.end - row.begin) :, None]
        hidden = keys > queries
        if self._site.window is not None:
            hidden |= keys <= queries - self._site.window
        return hidden
