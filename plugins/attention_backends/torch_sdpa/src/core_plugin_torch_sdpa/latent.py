"""Multi-head latent attention in plain torch: all heads share one latent and one rotated key for each token.

Two forms give the same numbers. *Absorbed*: the up-projection of the keys is moved to the queries, so that each query
meets one key of `latent_dim + rope_dim` numbers for all heads, and what it gathers is a latent. *Expanded*: keys and
values of every head are made of the latents. A query and a position cost `heads * (2 * latent_dim + rope_dim)` products
in the first and `heads * (key_dim + rope_dim + value_dim)` in the second, beside the expansion of the position.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from core.api.attention import AttentionContext, KVLayout, LatentSite
from core_plugin_torch_sdpa import elements
from core_plugin_torch_sdpa.plan import Decode, Prefill, SdpaPlan

EXPANDED_FROM = 65
"""New tokens of a row, or of a tile of it, from which on latents are expanded: fewer do not pay for it."""


def latent_layout(site: LatentSite, ctx: AttentionContext) -> KVLayout:
    """Return the blocks of a latent layer: latents, with the rotated key behind each."""
    sizes = (elements.stored_size(size, ctx.kv_dtype) for size in (site.latent_dim, site.rope_dim))
    return KVLayout((ctx.block_size, sum(sizes)), elements.stored_dtype(ctx.kv_dtype))


class TorchSdpaLatent:
    """Latent attention of one layer.

    Args:
        variant: Place of the layer's kind among the plan's variants.
    """

    def __init__(self, site: LatentSite, ctx: AttentionContext, variant: int) -> None:
        self._site, self._variant = site, variant
        self._dtype, self._kv_dtype = ctx.dtype, ctx.kv_dtype
        self._stored = elements.stored_size(site.latent_dim, ctx.kv_dtype)
        self._scale = 1.0
        self._key = self._value = torch.empty(0)

    def use_up(self, key: Tensor, value: Tensor) -> None:
        """Use `key (heads, key_dim, latent_dim)` and `value (heads, latent_dim, value_dim)` from now on."""
        self._key, self._value = key, value

    def use_scales(self, key: Tensor, value: Tensor) -> None:
        """Divide what a float8 cache keeps of a token by `key` before it is rounded; `value` is the same."""
        self._scale = float(key)

    def write(self, latent: Tensor, rope_key: Tensor, kv: Tensor, plan: SdpaPlan) -> None:
        """Store `latent (tokens, latent_dim)` and `rope_key (tokens, rope_dim)` at the plan's slots."""
        parts = [elements.encode(one, self._kv_dtype, self._scale) for one in (latent, rope_key)]
        kv.view(-1, kv.shape[2]).index_copy_(0, plan.slots, torch.cat(parts, dim=-1))

    def forward(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: SdpaPlan) -> Tensor:
        """`q (tokens, heads, key_dim)`, `q_rope (tokens, heads, rope_dim)` -> `(tokens, heads * value_dim)`."""
        return self._run(q, q_rope, kv, plan, None)

    def forward_picked(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: SdpaPlan, picked: Tensor) -> Tensor:
        """As `forward`, by the positions `picked (tokens, picks)`; -1 stands for none."""
        return self._run(q, q_rope, kv, plan, picked)

    def _run(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: SdpaPlan, picked: Tensor | None) -> Tensor:
        variant = plan.of(self._variant)
        out = q.new_empty(len(q), self._site.num_heads, self._site.value_dim)
        for decode in variant.decodes:
            rows = slice(None) if decode.tokens is None else decode.tokens
            if picked is None or decode.width(kv.shape[1]) <= picked.shape[1]:
                out[rows] = self._decode(q[rows], q_rope[rows], kv, decode)
            else:
                out[rows] = self._decode_picked(q[rows], q_rope[rows], kv, decode, picked[rows])
        for prefill in variant.prefills:
            tile = slice(prefill.begin, prefill.end)
            form = self._absorbed if prefill.end - prefill.begin < EXPANDED_FROM else self._expanded
            mask = prefill.mask
            if picked is not None and prefill.length > picked.shape[1]:
                mask = self._picked_mask(picked[tile], prefill.length)
            out[tile] = form(q[tile], q_rope[tile], self._tile(kv, prefill), mask)
        return out.flatten(1)

    def _decode_picked(self, q: Tensor, q_rope: Tensor, kv: Tensor, decode: Decode, picked: Tensor) -> Tensor:
        """Attend with one query of each row to what is gathered of its picks, `(rows, heads, value_dim)`."""
        size, places = kv.shape[1], picked.clamp(min=0).long()
        blocks = decode.gathered.view(decode.rows, -1).gather(1, places // size)
        slots = (blocks * size + places % size).flatten()
        keys = self._opened(kv.view(-1, kv.shape[2]).index_select(0, slots)).view(decode.rows, 1, -1, self._width)
        mask = torch.zeros(picked.shape, dtype=q.dtype, device=q.device).masked_fill_(picked < 0, -torch.inf)
        found = self._attend(self._absorb(q, q_rope)[:, None], keys, keys, mask[:, None, None])
        return self._values(found[:, 0].transpose(0, 1)).transpose(0, 1)

    def _picked_mask(self, picked: Tensor, length: int) -> Tensor:
        """Return what hides all but the picks of each query, `(queries, length)` additive."""
        # One column more takes what stands for no position.
        mask = torch.full((len(picked), length + 1), -torch.inf, dtype=self._dtype, device=picked.device)
        mask.scatter_(1, torch.where(picked < 0, length, picked).long(), 0.0)
        return mask[:, :length]

    def _decode(self, q: Tensor, q_rope: Tensor, kv: Tensor, decode: Decode) -> Tensor:
        """Attend with one query of each row, `(rows, heads, value_dim)`; heads take the place of query positions."""
        keys = self._gather(kv, decode.gathered).view(decode.rows, 1, -1, self._width)
        found = self._attend(self._absorb(q, q_rope)[:, None], keys, keys, decode.mask)
        return self._values(found[:, 0].transpose(0, 1)).transpose(0, 1)

    def _absorbed(self, q: Tensor, q_rope: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        """`(queries, heads, ...)`, `keys (positions, latent_dim + rope_dim)` -> `(queries, heads, value_dim)`."""
        queries = self._absorb(q, q_rope).transpose(0, 1)[None]
        shared = keys.expand(1, self._site.num_heads, *keys.shape)  # the same memory for all heads
        found = self._attend(queries, shared, shared, mask, causal=mask is None)
        return self._values(found[0]).transpose(0, 1)

    def _expanded(self, q: Tensor, q_rope: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        """The same by keys and values of each head; shapes as of `_absorbed`."""
        site = self._site
        latents, rotated = keys.split_with_sizes((site.latent_dim, site.rope_dim), dim=1)
        own = latents @ self._key.transpose(1, 2)  # (heads, positions, key_dim)
        k = torch.cat((own, rotated.expand(len(own), *rotated.shape)), dim=-1)
        queries, v = torch.cat((q, q_rope), dim=-1).transpose(0, 1), latents @ self._value
        size = max(site.key_dim + site.rope_dim, site.value_dim)
        queries, k, v = (pad(one, (0, size - one.shape[-1]))[None] for one in (queries, k, v))
        found = self._attend(queries, k, v, mask, causal=mask is None)[0]
        return found[..., : site.value_dim].transpose(0, 1)

    def _absorb(self, q: Tensor, q_rope: Tensor) -> Tensor:
        """Return queries that meet latents and rotated keys, `(queries, heads, latent_dim + rope_dim)`."""
        return torch.cat((torch.bmm(q.transpose(0, 1), self._key).transpose(0, 1), q_rope), dim=-1)

    def _values(self, found: Tensor) -> Tensor:
        """`(heads, queries, latent_dim + ...) -> (heads, queries, value_dim)`."""
        return torch.bmm(found[..., : self._site.latent_dim], self._value)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool = False) -> Tensor:
        """Attend by keys and values of one size: kernels that keep no scores want it so, and want four dimensions."""
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=self._site.scale)

    def _tile(self, kv: Tensor, prefill: Prefill) -> Tensor:
        """Return the latents and rotated keys that a tile sees, `(positions, latent_dim + rope_dim)`."""
        return self._gather(kv, prefill.gathered)[prefill.skip : prefill.skip + prefill.length]

    def _gather(self, kv: Tensor, blocks: Tensor) -> Tensor:
        """Return what blocks hold, `(positions, latent_dim + rope_dim)` in the compute dtype."""
        return self._opened(kv.index_select(0, blocks).flatten(0, 1))

    def _opened(self, stored: Tensor) -> Tensor:
        """Return stored tokens, `(positions, latent_dim + rope_dim)` in the compute dtype."""
        if stored.dtype == self._dtype:
            return stored
        parts = (stored[:, : self._stored], stored[:, self._stored :])
        return torch.cat([elements.decode(one, self._kv_dtype, self._dtype, self._scale) for one in parts], dim=-1)

    @property
    def _width(self) -> int:
        return self._site.latent_dim + self._site.rope_dim
