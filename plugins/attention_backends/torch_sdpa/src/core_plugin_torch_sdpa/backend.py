"""The backend: cache layout, plans, and attention of one layer by `scaled_dot_product_attention`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from core.api.attention import (
    AttentionContext,
    AttentionSite,
    BatchView,
    CompressedSite,
    KVLayout,
    LatentSite,
    PickSite,
)
from core.api.steps import StepShape
from core_plugin_torch_sdpa import elements
from core_plugin_torch_sdpa.compressed import TorchSdpaCompressed, TorchSdpaEntryPicker, compressed_layout
from core_plugin_torch_sdpa.encoder import TorchSdpaEncoder
from core_plugin_torch_sdpa.fixed import FixedPlan, FixedPlanner
from core_plugin_torch_sdpa.latent import TorchSdpaLatent, latent_layout
from core_plugin_torch_sdpa.picks import TorchSdpaPicker
from core_plugin_torch_sdpa.plan import Decode, LayerKind, Planner, Prefill, SdpaPlan

_PICKED = LayerKind(window=None, fused=False, latent=True)
"""Pickers, and the layers that they pick for: each has a mask to pick within."""


class TorchSdpaBackend:
    """Paged attention in plain torch. Block `b` has its keys in `cache[b, 0]`, its values in `cache[b, 1]`."""

    def __init__(self, ctx: AttentionContext) -> None:
        self._ctx = ctx
        self._planner = Planner(ctx.block_size, ctx.dtype)
        self._fixed = FixedPlanner(ctx.block_size, ctx.dtype, ctx.device)
        self._kinds: list[LayerKind] = []
        self._layers: dict[int, int] = {}  # KV layer -> its kind

    def kv_layout(self, site: AttentionSite) -> KVLayout:
        """Return blocks of `(2, block_size, kv_heads, head_dim)`; int8 with the scale behind each head."""
        size = elements.stored_size(site.head_dim, self._ctx.kv_dtype)
        return KVLayout((2, self._ctx.block_size, site.num_kv_heads, size), elements.stored_dtype(self._ctx.kv_dtype))

    def plan(self, batch: BatchView) -> SdpaPlan:
        """Prepare a step for those of the layers made so far that the batch is for."""
        if batch.layers is None:
            return self._planner.plan(batch, self._kinds)
        # Attention to compressed entries has no variant.
        wanted = {self._layers[layer] for layer in batch.layers if layer in self._layers}
        return self._planner.plan(batch, [kind if i in wanted else None for i, kind in enumerate(self._kinds)])

    def fixed_plan(self, shape: StepShape) -> FixedPlan:
        """Return a plan that captured graphs read, for the layers made so far."""
        return self._fixed.plan(shape, self._kinds)

    def refresh(self, plan: FixedPlan, batch: BatchView) -> None:
        """Fill it for a batch."""
        self._fixed.refresh(plan, batch)

    def layer(self, site: AttentionSite) -> TorchSdpaLayer:
        """Return the attention of one layer; later plans cover it."""
        alibi = site.slopes is not None
        plain = site.softcap is None and not site.sinks and not alibi
        kind = LayerKind(site.window, plain, site.chunk, alibi)
        return TorchSdpaLayer(site, self._ctx, self._variant(site.layer, kind))

    def latent_layout(self, site: LatentSite) -> KVLayout:
        """Return blocks of `(block_size, latent_dim + rope_dim)`; int8 with the scales behind each part."""
        return latent_layout(site, self._ctx)

    def latent(self, site: LatentSite) -> TorchSdpaLatent:
        """Return the latent attention of one layer; later plans cover it."""
        kind = _PICKED if site.picks is not None else LayerKind(window=None, fused=True, latent=True)
        return TorchSdpaLatent(site, self._ctx, self._variant(site.layer, kind))

    def picker_layout(self, site: PickSite) -> KVLayout:
        """Return blocks of `(block_size / ratio, key_dim)`; int8 with the scale behind each key."""
        return compressed_layout(site.key_dim, site.ratio, self._ctx)

    def picker(self, site: PickSite) -> TorchSdpaPicker | TorchSdpaEntryPicker:
        """Return what picks positions or entries; later plans cover it."""
        if site.ratio > 1:
            return TorchSdpaEntryPicker(site, self._ctx)
        return TorchSdpaPicker(site, self._ctx, self._variant(site.layer, _PICKED))

    def compressed_layout(self, site: CompressedSite) -> KVLayout:
        """Return blocks of `(block_size / ratio, head_dim)`; int8 with the scale behind each entry."""
        return compressed_layout(site.head_dim, site.ratio, self._ctx)

    def compressed(self, site: CompressedSite) -> TorchSdpaCompressed:
        """Return the attention to entries of one layer."""
        return TorchSdpaCompressed(site, self._ctx)

    def encoder(self, site: AttentionSite) -> TorchSdpaEncoder:
        """Return attention within the prompts of a step."""
        return TorchSdpaEncoder(site)

    def _variant(self, layer: int, kind: LayerKind) -> int:
        """Return the place of a layer's kind among the variants of later plans."""
        if kind not in self._kinds:
            self._kinds.append(kind)
        self._layers[layer] = self._kinds.index(kind)
        return self._layers[layer]


class TorchSdpaLayer:
    """Attention of one layer.

    Args:
        variant: Place of the layer's kind among the plan's variants.
    """

    def __init__(self, site: AttentionSite, ctx: AttentionContext, variant: int) -> None:
        self._site = site
        self._dtype = ctx.dtype
        self._kv_dtype = ctx.kv_dtype
        self._variant = variant
        self._device = ctx.device
        self._group = site.num_heads // site.num_kv_heads
        self._scales: tuple[float | Tensor, float | Tensor] = (1.0, 1.0)
        self._same = True
        self._slopes = None if site.slopes is None else torch.tensor(site.slopes, device=ctx.device)
        self._sinks: Tensor | None = None
        plain = site.softcap is None and site.slopes is None and not site.sinks
        self._attend = self._fused if plain else self._explicit

    def use_scales(self, key: Tensor, value: Tensor) -> None:
        """Divide keys and values of a float8 cache by these before they are rounded."""
        self._same = torch.equal(key, value)
        self._scales = (self._scale(key), self._scale(value))

    def use_sinks(self, sinks: Tensor) -> None:
        """Count `sinks (num_heads,)` in the softmax of each query."""
        # Heads that share a kv head are a dimension of their own in prompts, and the queries of decoding rows.
        self._sinks = sinks.float().view(self._site.num_kv_heads, self._group, 1)

    def write_kv(self, k: Tensor, v: Tensor, kv: Tensor, plan: SdpaPlan) -> None:
        """Store `k, v (tokens, kv_heads, head_dim)` at the plan's slots."""
        flat = kv.view(-1, *kv.shape[3:])
        flat.index_copy_(0, plan.key_slots, elements.encode(k, self._kv_dtype, self._scales[0]))
        flat.index_copy_(0, plan.value_slots, elements.encode(v, self._kv_dtype, self._scales[1]))

    def forward(self, q: Tensor, kv: Tensor, plan: SdpaPlan) -> Tensor:
        """Attend causally; `q (tokens, heads, head_dim)` -> `(tokens, heads * head_dim)`."""
        variant = plan.of(self._variant)
        halves = kv.view(kv.shape[0] * 2, -1)
        if len(variant.decodes) == 1 and variant.decodes[0].tokens is None:
            return self._decode(q, halves, variant.decodes[0]).view(q.shape[0], -1)
        out = q.new_empty(q.shape)
        for decode in variant.decodes:
            if decode.tokens is None:
                out.copy_(self._decode(q, halves, decode))
            else:
                out.index_copy_(0, decode.tokens, self._decode(q[decode.tokens], halves, decode))
        for prefill in variant.prefills:
            out[prefill.begin : prefill.end] = self._prefill(q[prefill.begin : prefill.end], halves, prefill)
        return out.view(q.shape[0], -1)

    def _decode(self, q: Tensor, halves: Tensor, decode: Decode) -> Tensor:
        """`(rows, heads, head_dim)` -> the same; the heads that share a kv head take the place of query positions."""
        site, rows = self._site, decode.rows
        k, v = self._gather(halves, decode.gathered, rows)
        grouped = q.reshape(rows, site.num_kv_heads, self._group, site.head_dim)
        return self._attend(grouped, k, v, decode.mask, decode.distance).reshape(q.shape)

    def _prefill(self, q: Tensor, halves: Tensor, prefill: Prefill) -> Tensor:
        """`(queries, heads, head_dim)` -> the same."""
        k, v = self._gather(halves, prefill.gathered, 1)
        seen = slice(prefill.skip, prefill.skip + prefill.length)
        heads_first, k, v = q.transpose(0, 1)[None], k[:, :, seen], v[:, :, seen]
        if prefill.mask is None:
            out = self._fused(heads_first, k, v, None, causal=True)
        else:
            out = self._attend(heads_first, k, v, prefill.mask, prefill.distance)
        return out[0].transpose(0, 1)

    def _gather(self, halves: Tensor, index: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """Return keys and values, each `(rows, kv_heads, positions, head_dim)`."""
        site = self._site
        size = elements.stored_size(site.head_dim, self._kv_dtype)
        both = halves.index_select(0, index).view(2, rows, -1, site.num_kv_heads, size)
        if self._same:
            both = elements.decode(both, self._kv_dtype, self._dtype, self._scales[0]).transpose(2, 3)
            return both[0], both[1]
        parts = zip(both, self._scales)
        k, v = (elements.decode(one, self._kv_dtype, self._dtype, scale).transpose(1, 2) for one, scale in parts)
        return k, v

    def _scale(self, given: Tensor) -> float | Tensor:
        """Return one number, or `(kv_heads, 1)` on the device."""
        return float(given) if given.dim() == 0 else given.to(self._device, torch.float32)[:, None]

    def _fused(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, _: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        shared = q.shape[1] != k.shape[1]
        return scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, scale=self._site.scale, enable_gqa=shared
        )

    def _explicit(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, distance: Tensor | None) -> Tensor:
        """Scores in float32: soft caps bend them between the products, slopes add large numbers, sinks stand beside."""
        site = self._site
        rows, heads, queries, dim = q.shape
        split = q.reshape(rows, site.num_kv_heads, -1, queries, dim)
        scores = (split @ k[:, :, None].transpose(3, 4)).float() * site.scale
        if site.softcap is not None:
            scores = torch.tanh(scores / site.softcap) * site.softcap
        if self._slopes is not None and distance is not None:
            # The heads that share a kv head are a dimension of their own here; of single tokens, that of the queries.
            slopes = self._slopes.view(site.num_kv_heads, split.shape[2], -1, 1)
            if site.rooted:
                distance = -(-distance).clamp(min=0).sqrt()
            scores += slopes * (distance if distance.dim() == 2 else distance[:, :, None])
        if mask is not None:
            scores += mask if mask.dim() == 2 else mask[:, :, None]
        if self._sinks is None:
            shares = torch.softmax(scores, -1)
        else:
            sinks = self._sinks.view(site.num_kv_heads, heads // site.num_kv_heads, -1, 1).expand(*scores.shape[:-1], 1)
            shares = torch.softmax(torch.cat((scores, sinks), -1), -1)[..., :-1]
        out = shares.to(q.dtype) @ v[:, :, None]
        return out.reshape(rows, heads, queries, dim)
