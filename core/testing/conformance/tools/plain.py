"""The plainest attention backend and quantization method: what models are checked on. Nothing here is fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor

from core.api.attention import (
    AttentionContext,
    AttentionLayer,
    AttentionPlan,
    AttentionSite,
    BatchView,
    KVLayout,
    LatentSite,
)
from core.api.forms import PLAIN, Part, Stored, WeightForm
from core.api.quantization import LayerSite, QuantContext
from core.api.weights import WeightTensor


class PlainAttention:
    """Attention, one sequence after the other, by definition. A plan is the batch itself.

    Attributes:
        encoders: Where the model sees whole prompts.
    """

    def __init__(self, ctx: AttentionContext) -> None:
        self._ctx = ctx
        self.encoders: list[AttentionSite] = []

    def kv_layout(self, site: AttentionSite) -> KVLayout:
        """Keys, then values, each `(block_size, kv_heads, head_dim)`."""
        return KVLayout((2, self._ctx.block_size, site.num_kv_heads, site.head_dim), self._ctx.kv_dtype)

    def plan(self, batch: BatchView) -> AttentionPlan:
        """Return the batch."""
        return batch

    def layer(self, site: AttentionSite) -> AttentionLayer:
        """Return the attention of one layer."""
        return PlainAttentionLayer(site, self._ctx.block_size)

    def latent_layout(self, site: LatentSite) -> KVLayout:
        """Return a latent with the rotated key behind it, for each token."""
        return KVLayout((self._ctx.block_size, site.latent_dim + site.rope_dim), self._ctx.kv_dtype)

    def latent(self, site: LatentSite) -> PlainLatent:
        """Return the latent attention of one layer."""
        return PlainLatent(site, self._ctx.block_size)

    def encoder(self, site: AttentionSite) -> PlainEncoder:
        """Return the attention of one layer within prompts."""
        self.encoders.append(site)
        return PlainEncoder(site)


class PlainAttentionLayer:
    """Attention of one layer."""

    def __init__(self, site: AttentionSite, block_size: int) -> None:
        self._site = site
        self._block_size = block_size

    def write_kv(self, k: Tensor, v: Tensor, kv: Tensor, plan: AttentionPlan) -> None:
        """Store keys and values at the batch's slots."""
        slots = cast(BatchView, plan).slots
        blocks, offsets = slots // self._block_size, slots % self._block_size
        kv[blocks, 0, offsets] = k.to(kv.dtype)
        kv[blocks, 1, offsets] = v.to(kv.dtype)

    def forward(self, q: Tensor, kv: Tensor, plan: AttentionPlan) -> Tensor:
        """Attend causally, `(tokens, heads * head_dim)`."""
        batch = cast(BatchView, plan)
        bounds = batch.query_starts.tolist()
        rows = zip(bounds, bounds[1:], batch.seq_lens.tolist(), batch.block_tables)
        parts = [self._row(q[begin:end], kv, table, length) for begin, end, length, table in rows]
        return torch.cat(parts).flatten(1).to(q.dtype)

    def _row(self, q: Tensor, kv: Tensor, table: Tensor, length: int) -> Tensor:
        site, blocks = self._site, table[: -(-length // self._block_size)].long()
        both = kv[blocks].transpose(0, 1).flatten(1, 2)[:, :length].float()
        k, v = both.repeat_interleave(site.num_heads // site.num_kv_heads, dim=2)
        scores = torch.einsum("qhd,khd->hqk", q.float(), k) * site.scale
        if site.softcap is not None:
            scores = site.softcap * torch.tanh(scores / site.softcap)
        query = torch.arange(length - len(q), length, device=q.device)[:, None]
        key = torch.arange(length, device=q.device)[None, :]
        if site.slopes is not None:
            away = (key - query).float()
            away = -(-away).clamp(min=0).sqrt() if site.rooted else away
            scores = scores + torch.tensor(site.slopes, device=q.device).view(-1, 1, 1) * away
        hidden = key > query
        if site.window is not None:
            hidden |= key <= query - site.window
        return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


class PlainLatent:
    """Latent attention of one layer, by keys and values of each head."""

    def __init__(self, site: LatentSite, block_size: int) -> None:
        self._site = site
        self._block_size = block_size

    def use_up(self, key: Tensor, value: Tensor) -> None:
        """Use these up-projections from now on."""
        self._key, self._value = key.float(), value.float()

    def write(self, latent: Tensor, rope_key: Tensor, kv: Tensor, plan: AttentionPlan) -> None:
        """Store latents and rotated keys at the batch's slots."""
        slots = cast(BatchView, plan).slots
        kv[slots // self._block_size, slots % self._block_size] = torch.cat((latent, rope_key), dim=-1).to(kv.dtype)

    def forward(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: AttentionPlan) -> Tensor:
        """Attend causally, `(tokens, heads * value_dim)`."""
        batch = cast(BatchView, plan)
        queries, bounds = torch.cat((q, q_rope), dim=-1), batch.query_starts.tolist()
        rows = zip(bounds, bounds[1:], batch.seq_lens.tolist(), batch.block_tables)
        parts = [self._row(queries[begin:end], kv, table, length) for begin, end, length, table in rows]
        return torch.cat(parts).flatten(1).to(q.dtype)

    def _row(self, q: Tensor, kv: Tensor, table: Tensor, length: int) -> Tensor:
        site, blocks = self._site, table[: -(-length // self._block_size)].long()
        kept = kv[blocks].flatten(0, 1)[:length].float()
        latent, rotated = kept.split_with_sizes((site.latent_dim, site.rope_dim), dim=-1)
        own = torch.einsum("hkl,pl->hpk", self._key, latent)
        keys = torch.cat((own, rotated.expand(len(own), -1, -1)), dim=-1)
        scores = torch.einsum("qhd,hpd->hqp", q.float(), keys) * site.scale
        query = torch.arange(length - len(q), length, device=q.device)[:, None]
        hidden = torch.arange(length, device=q.device)[None] > query
        values = torch.einsum("pl,hlv->hpv", latent, self._value)
        return torch.einsum("hqp,hpv->qhv", scores.masked_fill(hidden, -torch.inf).softmax(-1), values)


class PlainEncoder:
    """Attention of one layer within prompts."""

    def __init__(self, site: AttentionSite) -> None:
        self._site = site

    def forward(self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan) -> Tensor:
        """Attend, `(tokens, heads * head_dim)`."""
        starts = cast(BatchView, plan).query_starts.tolist()
        return encode_plainly(q, k, v, starts, self._site).to(q.dtype)


def encode_plainly(q: Tensor, k: Tensor, v: Tensor, starts: Sequence[int], site: AttentionSite) -> Tensor:
    """Attend within each row by definition, in float32.

    Shapes: `q (tokens, heads, head_dim)`, `k, v (tokens, kv_heads, head_dim)` -> `(tokens, heads * head_dim)`.
    """
    parts = []
    groups = site.num_heads // site.num_kv_heads
    for begin, end in pairwise(starts):
        keys, values = (x[begin:end].float().repeat_interleave(groups, dim=1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q[begin:end].float(), keys) * site.scale
        if site.bias is not None:
            scores = scores + site.bias(end - begin).float()
        if site.window is not None:
            ramp = torch.arange(end - begin, device=q.device)
            scores = scores.masked_fill((ramp[:, None] - ramp).abs() > site.window // 2, -torch.inf)
        parts.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), values))
    return torch.cat(parts).flatten(1)


class PlainWeights:
    """Every layer's weights as they are."""

    def __init__(self, ctx: QuantContext) -> None:
        self._dtype = ctx.dtype

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return the plain form."""
        return PLAIN

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return one matrix."""
        return (Stored("weight"),)

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return the matrix in the compute dtype."""
        return Part(PLAIN, tensors["weight"].dense(self._dtype))
