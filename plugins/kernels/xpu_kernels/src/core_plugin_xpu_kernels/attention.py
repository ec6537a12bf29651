"""The backend: one function of the library computes steps of all kinds."""

from __future__ import annotations

from typing import Any

from core_plugin_accelerator.paged import PagedBackend, PagedLayer, PagedPlan, causal_window
from torch import Tensor
from vllm_xpu_kernels.flash_attn_interface import flash_attn_varlen_func

from core.api.attention import AttentionContext, AttentionSite


class XpuAttention(PagedBackend):
    """Paged attention by vllm-xpu-kernels."""

    def layer(self, site: AttentionSite) -> XpuLayer:
        """Return the attention of one layer."""
        return XpuLayer(site, self._ctx)


class XpuLayer(PagedLayer):
    """Attention of one layer."""

    def __init__(self, site: AttentionSite, ctx: AttentionContext) -> None:
        super().__init__(site, ctx)
        # Any limit, that of causality too, sends the library to its kernels of windows.
        window = [-1, -1] if site.window is None else list(causal_window(site))
        self._terms: dict[str, Any] = {
            "softmax_scale": site.scale,
            "causal": True,
            "window_size": window,
            "softcap": site.softcap or 0.0,
        }

    def use_sinks(self, sinks: Tensor) -> None:
        """Count `sinks (heads,)` in the softmax of each query."""
        self._terms["s_aux"] = sinks.to(self._ctx.device, self._ctx.dtype)

    def _attend(self, q: Tensor, kv: Tensor, plan: PagedPlan) -> Tensor:
        out: Tensor = flash_attn_varlen_func(
            q,
            kv[:, 0],
            kv[:, 1],
            max_seqlen_q=plan.max_query,
            cu_seqlens_q=plan.starts,
            max_seqlen_k=plan.max_length,
            seqused_k=plan.lengths,
            block_table=plan.tables,
            **self._terms,
        )
        return out
