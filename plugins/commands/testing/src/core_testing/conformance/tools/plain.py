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
    CompressedSite,
    KVLayout,
    LatentSite,
    PickSite,
)
from core.api.forms import PLAIN, Part, Stored, WeightForm
from core.api.quantization import LayerSite, QuantContext
from core.api.weights import WeightTensor
from core_testing.conformance.tools.plain_compressed import PlainCompressed, PlainEntryPicker


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

    def picker_layout(self, site: PickSite) -> KVLayout:
        """Return an index key for each token, or for as many as an entry stands for."""
        return KVLayout((self._ctx.block_size // site.ratio, site.key_dim), self._ctx.kv_dtype)

    def picker(self, site: PickSite) -> PlainPicker | PlainEntryPicker:
        """Return what picks positions, or entries."""
        return (PlainPicker if site.ratio == 1 else PlainEntryPicker)(site, self._ctx.block_size)

    def compressed_layout(self, site: CompressedSite) -> KVLayout:
        """Return an entry for as many tokens as it stands for."""
        return KVLayout((self._ctx.block_size // site.ratio, site.head_dim), self._ctx.kv_dtype)

    def compressed(self, site: CompressedSite) -> PlainCompressed:
        """Return the attention to the entries of one layer."""
        return PlainCompressed(site, self._ctx.block_size)

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
        return self._attend(q, q_rope, kv, plan, None)

    def forward_picked(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: AttentionPlan, picked: Tensor) -> Tensor:
        """Attend to picked positions, `(tokens, heads * value_dim)`."""
        return self._attend(q, q_rope, kv, plan, picked)

    def _attend(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: AttentionPlan, picked: Tensor | None) -> Tensor:
        batch = cast(BatchView, plan)
        queries, bounds = torch.cat((q, q_rope), dim=-1), batch.query_starts.tolist()
        parts = []
        for begin, end, length, table in zip(bounds, bounds[1:], batch.seq_lens.tolist(), batch.block_tables):
            hidden = torch.ones(end - begin, length, device=q.device).triu(length - (end - begin) + 1).bool()
            if picked is not None:
                hidden |= not_picked(picked[begin:end], length)
            parts.append(self._row(queries[begin:end], kv, table, hidden))
        return torch.cat(parts).flatten(1).to(q.dtype)

    def _row(self, q: Tensor, kv: Tensor, table: Tensor, hidden: Tensor) -> Tensor:
        """Attend to what is not `hidden (queries, length)`."""
        length = hidden.shape[1]
        site, blocks = self._site, table[: -(-length // self._block_size)].long()
        kept = kv[blocks].flatten(0, 1)[:length].float()
        latent, rotated = kept.split_with_sizes((site.latent_dim, site.rope_dim), dim=-1)
        own = torch.einsum("hkl,pl->hpk", self._key, latent)
        keys = torch.cat((own, rotated.expand(len(own), -1, -1)), dim=-1)
        scores = torch.einsum("qhd,hpd->hqp", q.float(), keys) * site.scale
        values = torch.einsum("pl,hlv->hpv", latent, self._value)
        return torch.einsum("hqp,hpv->qhv", scores.masked_fill(hidden, -torch.inf).softmax(-1), values)


class PlainPicker:
    """Positions of the best index scores, one sequence after the other."""

    def __init__(self, site: PickSite, block_size: int) -> None:
        self._site = site
        self._block_size = block_size

    def write(self, key: Tensor, kv: Tensor, plan: AttentionPlan) -> None:
        """Store index keys at the batch's slots."""
        slots = cast(BatchView, plan).slots
        kv[slots // self._block_size, slots % self._block_size] = key.to(kv.dtype)

    def forward(self, q: Tensor, weights: Tensor, kv: Tensor, plan: AttentionPlan) -> Tensor | None:
        """Return picked positions, `(tokens, picks)` int32."""
        batch = cast(BatchView, plan)
        if batch.max_seq_len <= self._site.picks:
            return None
        bounds = batch.query_starts.tolist()
        parts = []
        for begin, end, length, table in zip(bounds, bounds[1:], batch.seq_lens.tolist(), batch.block_tables):
            keys = kv[table[: -(-length // self._block_size)].long()].flatten(0, 1)[:length]
            scores = index_scores(q[begin:end], weights[begin:end], keys, self._site)
            best, places = scores.topk(min(self._site.picks, length), dim=1)
            found = places.int().masked_fill(best == -torch.inf, -1)
            parts.append(torch.nn.functional.pad(found, (0, self._site.picks - found.shape[1]), value=-1))
        return torch.cat(parts)


def index_scores(q: Tensor, weights: Tensor, keys: Tensor, site: PickSite) -> Tensor:
    """Return what a picker's scores are by definition, in float32 at least; -inf behind each query.

    Shapes: `q (queries, heads, key_dim)`, `weights (queries, heads)` of the last tokens, `keys (length, key_dim)` of
    all -> `(queries, length)`.
    """
    dtype = torch.promote_types(q.dtype, torch.float32)
    products = torch.einsum("qhd,pd->qhp", q.to(dtype), keys.to(dtype)) * site.scale
    scores = torch.einsum("qh,qhp->qp", weights.to(dtype), products.relu())
    hidden = torch.ones_like(scores).triu(len(keys) - len(q) + 1).bool()
    return scores.masked_fill(hidden, -torch.inf)


def not_picked(picked: Tensor, length: int) -> Tensor:
    """Return which positions are not among `picked (queries, picks)`, `(queries, length)` bool."""
    hidden = torch.ones(len(picked), length + 1, dtype=torch.bool, device=picked.device)
    return hidden.scatter_(1, torch.where(picked < 0, length, picked).long(), value=False)[:, :length]


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
            scores = scores + site.bias(end - begin, scores.device).float()
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
