"""FlashAttention 2: `flash_attn`."""

from __future__ import annotations

from typing import Any

import torch
from core_plugin_accelerator.paged import PagedBackend, PagedLayer, PagedPlan, causal_window
from flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache
from torch import Tensor

from core.api.attention import AttentionContext, AttentionSite
from core_plugin_flash_attn.encoder import FlashEncoder, first
from core_plugin_flash_attn.options import FlashAttentionOptions


class FlashAttention2(PagedBackend):
    """Paged attention by FlashAttention 2."""

    def layer(self, site: AttentionSite) -> FlashAttention2Layer:
        """Return the attention of one layer."""
        return FlashAttention2Layer(site, self._ctx)

    def encoder(self, site: AttentionSite) -> FlashEncoder:
        """Return attention within the prompts of a step."""
        return FlashEncoder(site, flash_attn_varlen_func)


class FlashAttention2Layer(PagedLayer):
    """Steps of one token a row are computed in splits of their contexts, others in tiles of their queries."""

    def __init__(self, site: AttentionSite, ctx: AttentionContext) -> None:
        super().__init__(site, ctx)
        self._splits = FlashAttentionOptions.model_validate(dict(ctx.options)).splits
        slopes = None if site.slopes is None else torch.tensor(site.slopes, dtype=torch.float32, device=ctx.device)
        self._terms: dict[str, Any] = {
            "softmax_scale": site.scale,
            "causal": True,
            "window_size": causal_window(site),
            "softcap": site.softcap or 0.0,
            "alibi_slopes": slopes,
        }

    def _attend(self, q: Tensor, kv: Tensor, plan: PagedPlan) -> Tensor:
        keys, values = kv[:, 0], kv[:, 1]
        terms: dict[str, Any] = {**self._terms, "block_table": plan.tables}
        if plan.single:
            out = flash_attn_with_kvcache(
                q[:, None], keys, values, cache_seqlens=plan.lengths, num_splits=self._splits, **terms
            )
            return first(out)[:, 0]
        most = (plan.max_query, plan.max_length)
        return first(flash_attn_varlen_func(q, keys, values, plan.starts, plan.ends, *most, **terms))
