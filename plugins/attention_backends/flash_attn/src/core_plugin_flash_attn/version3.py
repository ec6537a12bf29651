"""FlashAttention 3: `flash_attn_interface`."""

from __future__ import annotations

from typing import Any

from core_plugin_accelerator.paged import PagedBackend, PagedLayer, PagedPlan, causal_window
from flash_attn_interface import flash_attn_varlen_func, flash_attn_with_kvcache
from torch import Tensor

from core.api.attention import AttentionContext, AttentionSite
from core_plugin_flash_attn.encoder import FlashEncoder, first
from core_plugin_flash_attn.options import FlashAttentionOptions


class FlashAttention3(PagedBackend):
    """Paged attention by FlashAttention 3."""

    def layer(self, site: AttentionSite) -> FlashAttention3Layer:
        """Return the attention of one layer."""
        return FlashAttention3Layer(site, self._ctx)

    def encoder(self, site: AttentionSite) -> FlashEncoder:
        """Return attention within the prompts of a step."""
        return FlashEncoder(site, flash_attn_varlen_func)


class FlashAttention3Layer(PagedLayer):
    """One function computes steps of all kinds."""

    def __init__(self, site: AttentionSite, ctx: AttentionContext) -> None:
        super().__init__(site, ctx)
        self._terms: dict[str, Any] = {
            "softmax_scale": site.scale,
            "causal": True,
            "window_size": causal_window(site),
            "attention_chunk": site.chunk or 0,
            "softcap": site.softcap or 0.0,
            "num_splits": FlashAttentionOptions.model_validate(dict(ctx.options)).splits,
        }

    def _attend(self, q: Tensor, kv: Tensor, plan: PagedPlan) -> Tensor:
        keys, values = kv[:, 0], kv[:, 1]
        out = flash_attn_with_kvcache(
            q,
            keys,
            values,
            cache_seqlens=plan.lengths,
            page_table=plan.tables,
            cu_seqlens_q=plan.starts,
            max_seqlen_q=plan.max_query,
            **self._terms,
        )
        return first(out)
