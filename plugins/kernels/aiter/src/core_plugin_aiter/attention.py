"""The backend: prompts over gathered keys and values, steps of one token a row over pages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from aiter import flash_attn_varlen_func, paged_attention_v1
from core_plugin_accelerator.latents import latent_layout, queries_of
from core_plugin_accelerator.paged import PagedBackend, PagedLayer, PagedPlan, entries
from torch import Tensor

from core.api.attention import AttentionContext, AttentionSite, BatchView, KVLayout, LatentSite
from core.api.steps import StepShape
from core_plugin_aiter.plan import AiterPlan, fixed_piece, latent_pieces, places_of

if TYPE_CHECKING:
    from core_plugin_aiter.latent import AiterLatent

PARTITION = 256
"""Keys of a part of a context: AITER's own size. It is fixed, so a row's numbers do not depend on the others."""


class AiterAttention(PagedBackend):
    """Paged attention by AITER."""

    def __init__(self, ctx: AttentionContext) -> None:
        super().__init__(ctx)
        self._latents: set[int] = set()
        self._places = torch.empty(0, dtype=torch.int32, device=ctx.device)

    def layer(self, site: AttentionSite) -> PagedLayer:
        """Return the attention of one layer."""
        if site.window is None and not site.sinks:
            return AiterLayer(site, self._ctx)
        # It brings the library's Triton kernels, which other layers do without.
        from core_plugin_aiter.windows import WindowLayer

        return WindowLayer(site, self._ctx)

    def latent_layout(self, site: LatentSite) -> KVLayout:
        """Return the blocks of a latent layer."""
        return latent_layout(site, self._ctx)

    def latent(self, site: LatentSite) -> AiterLatent:
        """Return the latent attention of one layer; later plans cover it."""
        from core_plugin_aiter.latent import AiterLatent

        self._latents.add(site.layer)
        return AiterLatent(site, self._ctx)

    def plan(self, batch: BatchView) -> AiterPlan:  # type: ignore[override]
        """Describe a step, for layers of any kind."""
        paged = super().plan(batch)
        return AiterPlan(paged, latent_pieces(paged, self._ctx.block_size) if self._has_latents(batch) else [])

    def fixed_plan(self, shape: StepShape) -> AiterPlan:  # type: ignore[override]
        """Return a plan in memory of its own, but for the places of latents: all plans share theirs."""
        paged = super().fixed_plan(shape)
        return AiterPlan(paged, [fixed_piece(paged, self._shared)] if self._latents else [])

    def refresh(self, plan: AiterPlan, batch: BatchView) -> None:  # type: ignore[override]
        """Fill it for a batch of its shape."""
        super().refresh(plan.paged, batch)
        if self._has_latents(batch):
            (queries,) = queries_of(replace(plan.paged, seq_lens=batch.seq_lens), plan.paged.rows)
            found = places_of(queries, self._ctx.block_size)
            plan.pieces[0].places[: len(found)].copy_(found)

    def _has_latents(self, batch: BatchView) -> bool:
        return bool(self._latents if batch.layers is None else self._latents & batch.layers)

    def _shared(self, size: int) -> Tensor:
        """Return memory for so many places. Steps run one after the other, and each fills it anew."""
        if len(self._places) < size:
            self._places = torch.zeros(size, dtype=torch.int32, device=self._ctx.device)
        return self._places[:size]


class AiterLayer(PagedLayer):
    """Attention of one layer."""

    def __init__(self, site: AttentionSite, ctx: AttentionContext) -> None:
        super().__init__(site, ctx)
        device = ctx.device
        self._slopes = None if site.slopes is None else torch.tensor(site.slopes, dtype=torch.float32, device=device)
        self._one = torch.ones(1, dtype=torch.float32, device=device)

    def _attend(self, q: Tensor, kv: Tensor, plan: AiterPlan) -> Tensor:  # type: ignore[override]
        return (self._decode if plan.paged.single else self._prompts)(q, kv, plan.paged)

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
