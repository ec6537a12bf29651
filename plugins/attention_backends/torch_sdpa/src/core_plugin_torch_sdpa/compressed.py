"""Attention to compressed entries in plain torch, and pickers that choose among them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from core.api.attention import AttentionContext, CompressedSite, KVLayout, PickSite
from core_plugin_torch_sdpa import elements
from core_plugin_torch_sdpa.entries import EntryGroup
from core_plugin_torch_sdpa.picks import MOST_SCORES, NONE, PickScores
from core_plugin_torch_sdpa.plan import SdpaPlan


def compressed_layout(size: int, ratio: int, ctx: AttentionContext) -> KVLayout:
    """Return blocks of entries of `size` numbers. Raises `ValueError` where a block does not hold whole ones."""
    if ctx.block_size % ratio:
        raise ValueError(f"a block of {ctx.block_size} tokens has no whole number of entries that stand for {ratio}")
    stored = elements.stored_size(size, ctx.kv_dtype)
    return KVLayout((ctx.block_size // ratio, stored), elements.stored_dtype(ctx.kv_dtype))


class TorchSdpaCompressed:
    """Attention to the entries of one layer, in float32."""

    def __init__(self, site: CompressedSite, ctx: AttentionContext) -> None:
        self._site, self._kv_dtype = site, ctx.kv_dtype

    def write(self, entries: Tensor, kv: Tensor, plan: SdpaPlan) -> None:
        """Store the entries `(tokens, head_dim)` that are complete."""
        plan.entries.store(kv, elements.encode(entries, self._kv_dtype), plan.slots, self._site.ratio)

    def forward(self, q: Tensor, kv: Tensor, plan: SdpaPlan, picked: Tensor | None) -> tuple[Tensor, Tensor]:
        """`q (tokens, heads, head_dim)` -> `(tokens, heads, head_dim)`, `(tokens, heads)`, both float32."""
        out = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
        sums = torch.full(q.shape[:2], -torch.inf, dtype=torch.float32, device=q.device)
        for group in plan.entries.groups():
            of = group.tokens
            shape = (*group.positions.shape, *q.shape[1:])
            chosen = None if picked is None else picked[of].reshape(*shape[:2], -1)
            found, total = self._group(q[of].reshape(shape), kv, group, chosen)
            out[of], sums[of] = found.flatten(0, 1), total.flatten(0, 1)
        return out, sums

    def _group(self, q: Tensor, kv: Tensor, group: EntryGroup, picked: Tensor | None) -> tuple[Tensor, Tensor]:
        """`(rows, queries, heads, head_dim)` -> the same, and `(rows, queries, heads)`."""
        rows, queries, heads = q.shape[:3]
        stored = kv.index_select(0, group.blocks.flatten()).flatten(0, 1).view(rows, -1, kv.shape[2])
        unseen = group.unseen(self._site.ratio, stored.shape[1])
        if picked is not None and queries == 1:
            at = picked[:, 0].clamp(min=0).long()
            stored = stored.gather(1, at[..., None].expand(-1, -1, stored.shape[2]))
            unseen = (picked < 0) | unseen.gather(2, at[:, None])
        elif picked is not None:
            unseen = unseen | _left_out(picked, stored.shape[1])
        keys = elements.decode(stored, self._kv_dtype, torch.float32)
        together = max(1, MOST_SCORES // max(1, rows * heads * keys.shape[1]))
        parts = [
            self._attend(q[:, begin : begin + together], keys, unseen[:, begin : begin + together])
            for begin in range(0, queries, together)
        ]
        return torch.cat([one for one, _ in parts], 1), torch.cat([one for _, one in parts], 1)

    def _attend(self, q: Tensor, keys: Tensor, unseen: Tensor) -> tuple[Tensor, Tensor]:
        rows, queries, heads, size = q.shape
        scores = (q.float().reshape(rows, -1, size) @ keys.transpose(1, 2)).view(rows, queries, heads, -1)
        scores = (scores * self._site.scale).masked_fill(unseen[:, :, None], -torch.inf)
        sums = scores.logsumexp(-1)
        shares = (scores - sums.masked_fill(sums == -torch.inf, 0.0)[..., None]).exp()
        return (shares.flatten(1, 2) @ keys).view(q.shape), sums


class TorchSdpaEntryPicker:
    """Chooses entries for compressed layers."""

    def __init__(self, site: PickSite, ctx: AttentionContext) -> None:
        self._site, self._kv_dtype = site, ctx.kv_dtype
        self._dtype = torch.promote_types(ctx.dtype, torch.float32)
        self._scores = PickScores(site, self._dtype)

    def write(self, key: Tensor, kv: Tensor, plan: SdpaPlan) -> None:
        """Store the index keys `(tokens, key_dim)` of entries that are complete."""
        plan.entries.store(kv, elements.encode(key, self._kv_dtype), plan.slots, self._site.ratio)

    def forward(self, q: Tensor, weights: Tensor, kv: Tensor, plan: SdpaPlan) -> Tensor | None:
        """`q (tokens, heads, key_dim)`, `weights (tokens, heads)` -> `(tokens, picks)` int32, or None."""
        if plan.entries.longest // self._site.ratio <= self._site.picks:
            return None
        picked = torch.full((len(q), self._site.picks), NONE, dtype=torch.int32, device=q.device)
        for group in plan.entries.groups():
            of, shape = group.tokens, group.positions.shape
            queries, own = q[of].reshape(*shape, *q.shape[1:]), weights[of].reshape(*shape, -1)
            picked[of] = self._group(queries, own, kv, group)
        return picked

    def _group(self, q: Tensor, weights: Tensor, kv: Tensor, group: EntryGroup) -> Tensor:
        """Return the picks of a group, `(rows * queries, picks)`."""
        rows, queries = q.shape[:2]
        stored = kv.index_select(0, group.blocks.flatten()).flatten(0, 1).view(rows, -1, kv.shape[2])
        keys = elements.decode(stored, self._kv_dtype, self._dtype)
        unseen = group.unseen(self._site.ratio, keys.shape[1])
        # Where a row is short there are fewer entries than picks; what is added is seen by nobody.
        lacks = max(0, self._site.picks - keys.shape[1])
        keys, unseen = pad(keys, (0, 0, 0, lacks)), pad(unseen, (0, lacks), value=True)
        together = max(1, MOST_SCORES // (rows * self._site.num_heads * keys.shape[1]))
        parts = []
        for begin in range(0, queries, together):
            few = slice(begin, begin + together)
            parts.append(self._scores.best(self._scores(q[:, few], weights[:, few], keys), unseen[:, few]))
        return torch.cat(parts, 1).flatten(0, 1)


def _left_out(picked: Tensor, width: int) -> Tensor:
    """Return which entries are not picked, `(rows, queries, width)` bool."""
    # One more takes what stands for none.
    left = torch.ones(*picked.shape[:2], width + 1, dtype=torch.bool, device=picked.device)
    return left.scatter_(2, torch.where(picked < 0, width, picked).long(), False)[..., :width]
