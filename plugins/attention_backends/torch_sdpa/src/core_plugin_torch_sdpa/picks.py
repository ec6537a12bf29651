"""Positions that latent attention is limited to, by scores of index keys in plain torch.

Where all of a group's or a tile's positions may be seen nothing is scored: each position is picked.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.api.attention import AttentionContext, PickSite
from core_plugin_torch_sdpa import elements
from core_plugin_torch_sdpa.plan import Decode, Prefill, SdpaPlan

NONE = -1
"""Stands for no position."""

MOST_SCORES = 2**24
"""Products of index heads that are there at once: bounds the queries of a prompt that are scored together."""


class PickScores:
    """Scores by index heads, and the best of them.

    Args:
        dtype: In which they are computed.
    """

    def __init__(self, site: PickSite, dtype: torch.dtype) -> None:
        self._site, self._dtype = site, dtype

    def __call__(self, q: Tensor, weights: Tensor, keys: Tensor) -> Tensor:
        """`(rows, queries, heads, key_dim)`, `(rows, queries, heads)`, `(rows, positions, key_dim)` ->
        `(rows, queries, positions)`."""
        products = q.to(self._dtype).flatten(1, 2) @ keys.transpose(1, 2)
        met = products.mul_(self._site.scale).relu_().view(*q.shape[:3], -1)
        return (weights.to(self._dtype)[:, :, None] @ met)[:, :, 0]

    def best(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        """Return the positions of the best scores that are not hidden, `(..., picks)`."""
        if hidden is not None:
            # Not added: what no token owns may be as large as its dtype allows.
            scores = scores.masked_fill_(hidden, -torch.inf)
        best, places = scores.topk(self._site.picks, dim=-1, sorted=False)
        return places.int().masked_fill_(best == -torch.inf, NONE)


class TorchSdpaPicker:
    """Chooses positions for the latent layers of a model.

    Args:
        variant: Place of its kind among the plan's variants; that of the layers which it is for.
    """

    def __init__(self, site: PickSite, ctx: AttentionContext, variant: int) -> None:
        self._site, self._variant, self._kv_dtype = site, variant, ctx.kv_dtype
        self._dtype = torch.promote_types(ctx.dtype, torch.float32)
        self._scores = PickScores(site, self._dtype)

    def write(self, key: Tensor, kv: Tensor, plan: SdpaPlan) -> None:
        """Store index keys `key (tokens, key_dim)` at the plan's slots."""
        kv.view(-1, kv.shape[2]).index_copy_(0, plan.slots, elements.encode(key, self._kv_dtype))

    def forward(self, q: Tensor, weights: Tensor, kv: Tensor, plan: SdpaPlan) -> Tensor | None:
        """`q (tokens, heads, key_dim)`, `weights (tokens, heads)` -> `(tokens, picks)` int32, or None."""
        variant, size = plan.of(self._variant), kv.shape[1]
        widths = [decode.width(size) for decode in variant.decodes] + [one.length for one in variant.prefills]
        if max(widths, default=0) <= self._site.picks:
            return None
        picked = torch.full((len(q), self._site.picks), NONE, dtype=torch.int32, device=q.device)
        for decode in variant.decodes:
            rows = slice(None) if decode.tokens is None else decode.tokens
            picked[rows] = self._decode(q[rows], weights[rows], kv, decode)
        for prefill in variant.prefills:
            tile = slice(prefill.begin, prefill.end)
            picked[tile] = self._prefill(q[tile], weights[tile], kv, prefill)
        return picked

    def _decode(self, q: Tensor, weights: Tensor, kv: Tensor, decode: Decode) -> Tensor:
        """Pick for one query of each row, `(rows, picks)`."""
        width, mask = decode.width(kv.shape[1]), decode.mask
        if width <= self._site.picks:
            return self._all(width, mask, decode.rows, q)
        keys = self._gather(kv, decode.gathered).view(decode.rows, width, -1)
        scores = self._scores(q[:, None], weights[:, None], keys)
        return self._scores.best(scores, None if mask is None else mask[:, 0] != 0)[:, 0]

    def _prefill(self, q: Tensor, weights: Tensor, kv: Tensor, prefill: Prefill) -> Tensor:
        """Pick for the queries of a tile, `(queries, picks)`."""
        if prefill.length <= self._site.picks:
            return self._all(prefill.length, prefill.mask, len(q), q)
        keys = self._gather(kv, prefill.gathered)[prefill.skip : prefill.skip + prefill.length][None]
        together = max(1, MOST_SCORES // (self._site.num_heads * prefill.length))
        parts = []
        for begin in range(0, len(q), together):
            few = slice(begin, begin + together)
            scores = self._scores(q[None, few], weights[None, few], keys)[0]
            parts.append(self._scores.best(scores, None if prefill.mask is None else prefill.mask[few] != 0))
        return torch.cat(parts)

    def _all(self, width: int, mask: Tensor | None, queries: int, like: Tensor) -> Tensor:
        """Return every position that is not hidden, `(queries, picks)`."""
        found = torch.full((queries, self._site.picks), NONE, dtype=torch.int32, device=like.device)
        places = torch.arange(width, dtype=torch.int32, device=like.device).expand(queries, width)
        found[:, :width] = places if mask is None else places.masked_fill(mask.view(queries, width) != 0, NONE)
        return found

    def _gather(self, kv: Tensor, blocks: Tensor) -> Tensor:
        """Return the index keys that blocks hold, `(positions, key_dim)`, in what scores are computed in."""
        return elements.decode(kv.index_select(0, blocks).flatten(0, 1), self._kv_dtype, self._dtype)
