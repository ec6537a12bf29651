"""Layers with windows or sinks: one kernel reads the pages in steps of all kinds. The library has it in Triton."""

from __future__ import annotations

from typing import Any

import torch
from aiter.ops.triton.unified_attention import unified_attention
from core_plugin_accelerator.paged import PagedLayer, causal_window
from torch import Tensor

from core.api.attention import AttentionContext, AttentionSite
from core_plugin_aiter.plan import AiterPlan


class WindowLayer(PagedLayer):
    """Attention of one layer."""

    def __init__(self, site: AttentionSite, ctx: AttentionContext) -> None:
        super().__init__(site, ctx)
        slopes = None if site.slopes is None else torch.tensor(site.slopes, dtype=torch.float32, device=ctx.device)
        self._terms: dict[str, Any] = {
            "softmax_scale": site.scale,
            "causal": True,
            # All that is before a query, where there is no window.
            "window_size": (-1, -1) if site.window is None else causal_window(site),
            "softcap": site.softcap or 0.0,
            "q_descale": None,
            "k_descale": None,
            "v_descale": None,
            "alibi_slopes": slopes,
        }

    def use_sinks(self, sinks: Tensor) -> None:
        """Count `sinks (heads,)` in the softmax of each query."""
        self._terms["sinks"] = sinks.to(self._ctx.device, torch.float32)

    def _attend(self, q: Tensor, kv: Tensor, plan: AiterPlan) -> Tensor:  # type: ignore[override]
        paged, out = plan.paged, torch.empty_like(q)
        unified_attention(
            q=q,
            k=kv[:, 0],
            v=kv[:, 1],
            out=out,
            cu_seqlens_q=paged.starts,
            max_seqlen_q=paged.max_query,
            seqused_k=paged.lengths,
            max_seqlen_k=paged.max_length,
            block_table=paged.tables,
            **self._terms,
        )
        return out
