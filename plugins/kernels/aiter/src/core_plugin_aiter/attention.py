"""The backend: prompts over gathered keys and values, steps of one token a row over pages."""

from __future__ import annotations

from typing import Any

import torch
from aiter import flash_attn_varlen_func, paged_attention_v1
from core_plugin_accelerator.paged import PagedBackend, PagedLayer, PagedPlan, entries
from torch import Tensor

from core.api.attention import AttentionContext, AttentionSite

PARTITION = 256
"""Keys of a part of a context: AITER's own size. It is fixed, so a row's numbers do not depend on the others."""


class AiterAttention(PagedBackend):
    """Paged attention by AITER."""

    def layer(self, site: AttentionSite) -> AiterLayer:
        """Return the attention of one layer."""
        return AiterLayer(site, self._ctx)


class AiterLayer(PagedLayer):
    """Attention of one layer."""

    def __init__(self, site: AttentionSite, ctx: AttentionContext) -> None:
        super().__init__(site, ctx)
        device = ctx.device
        self._slopes = None if site.slopes is None else torch.tensor(site.slopes, dtype=torch.float32, device=device)
        self._one = torch.ones(1, dtype=torch.float32, device=device)

    def _attend(self, q: Tensor, kv: Tensor, plan: PagedPlan) -> Tensor:
        return self._decode(q, kv, plan) if plan.single else self._prompts(q, kv, plan)

    def _decode(self, q: Tensor, kv: Tensor, plan: PagedPlan) -> Tensor:
        """Attend in parts of each row's context."""
        site, q = self._site, q.contiguous()
        parts = -(-plan.max_length // PARTITION)
        each = plan.rows * site.num_heads * parts
        space = torch.empty(each * (site.head_dim * q.element_size() + 8), dtype=torch.uint8, device=q.device)
        out = torch.empty_like(q)
        paged_attention_v1(
            out,
            space,
            q,
            kv[:, 0],
            kv[:, 1],
            site.scale,
            plan.tables,
            None,
            plan.lengths,
            plan.max_length,
            self._slopes,
            "auto",
            "NHD",
            site.softcap or 0.0,
            self._one,
            self._one,
            None,
            PARTITION,
        )
        return out

    def _prompts(self, q: Tensor, kv: Tensor, plan: PagedPlan) -> Tensor:
        """Attend to keys and values of all rows, gathered one behind the other."""
        site, total = self._site, int(plan.seq_lens.sum())
        size = self._ctx.block_size
        rows, places = entries(plan.lengths, total)
        keys = plan.tables[rows, places // size].long() * (2 * size) + places % size
        flat = kv.view(-1, *kv.shape[3:])
        terms: dict[str, Any] = {"softmax_scale": site.scale, "logits_soft_cap": site.softcap or 0.0, "causal": True}
        out = flash_attn_varlen_func(
            q,
            flat.index_select(0, keys),
            flat.index_select(0, keys + size),
            cu_seqlens_q=plan.starts,
            cu_seqlens_k=plan.ends,
            max_seqlen_q=plan.max_query,
            max_seqlen_k=plan.max_length,
            min_seqlen_q=1,
            alibi_slopes=self._slopes,
            **terms,
        )
        first: Tensor = out[0] if isinstance(out, tuple) else out
        return first
