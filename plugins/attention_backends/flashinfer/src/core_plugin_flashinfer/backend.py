"""The backend: plans by FlashInfer's wrappers, and the attention of one layer."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from core_plugin_accelerator.paged import PagedBackend, PagedLayer
from flashinfer import (
    BatchDecodeWithPagedKVCacheWrapper,
    BatchPrefillWithPagedKVCacheWrapper,
)
from torch import Tensor

from core.api.attention import AttentionContext, AttentionSite, BatchView
from core.api.facets import StepShape
from core_plugin_flashinfer.kind import Kind, kind_of, largest
from core_plugin_flashinfer.options import FlashInferOptions
from core_plugin_flashinfer.step import InferPlan, Pages, pages_of
from core_plugin_flashinfer.wrappers import Fenced, Turns

LAYOUT = "NHD"
"""Tokens of a page before heads, in FlashInfer's words."""


class FlashInferBackend(PagedBackend):
    """Paged attention by FlashInfer. Kinds of layers have plans of their own, and one workspace."""

    def __init__(self, ctx: AttentionContext) -> None:
        super().__init__(ctx)
        self._options = FlashInferOptions.model_validate(dict(ctx.options))
        self._layers: dict[int, Kind] = {}
        self._prompts: dict[Kind, Turns] = {}
        self._tokens: dict[Kind, Turns] = {}
        self._space: Tensor | None = None

    def layer(self, site: AttentionSite) -> FlashInferLayer:
        """Return the attention of one layer; later plans cover it."""
        kind = self._layers[site.layer] = kind_of(site)
        if kind not in self._prompts:
            device = self._ctx.device
            self._prompts[kind] = Turns(self._new_prompts, device)
            self._tokens[kind] = Turns(partial(self._new_tokens, kind), device)
        return FlashInferLayer(site, self._ctx)

    def plan(self, batch: BatchView) -> InferPlan:  # type: ignore[override]
        """Plan a step for those of the layers made so far that the batch is for."""
        plan = InferPlan(super().plan(batch))
        if not len(batch.slots):
            return plan
        paged = plan.paged
        found = pages_of(paged.tables, paged.lengths, paged.seq_lens, self._ctx.block_size)
        wanted = self._layers if batch.layers is None else {one for one in self._layers if one in batch.layers}
        for kind in dict.fromkeys(self._layers[one] for one in wanted):
            if paged.single:
                plan.wrappers[kind] = self._tokens[kind].plan(*self._decoding(kind, found))
            else:
                starts = torch.from_numpy(batch.query_starts.astype(np.int32, copy=False))
                plan.wrappers[kind] = self._prompts[kind].plan(*self._prompting(kind, starts, found))
        return plan

    def fixed_plan(self, shape: StepShape) -> InferPlan:  # type: ignore[override]
        """Return a plan whose wrappers read memory that stays."""
        plan, device = InferPlan(super().fixed_plan(shape)), self._ctx.device
        pages = plan.paged.tables.numel()
        for kind in dict.fromkeys(self._layers.values()):
            sizes = (shape.num_rows + 1, pages, shape.num_rows)
            names = ("paged_kv_indptr_buffer", "paged_kv_indices_buffer", "paged_kv_last_page_len_buffer")
            memory = {name: torch.zeros(size, dtype=torch.int32, device=device) for name, size in zip(names, sizes)}
            plan.wrappers[kind] = Fenced(self._new_tokens(kind, use_cuda_graph=True, **memory), device)
        return plan

    def refresh(self, plan: InferPlan, batch: BatchView) -> None:  # type: ignore[override]
        """Fill it for a batch: FlashInfer plans anew, from the host's lengths."""
        super().refresh(plan.paged, batch)
        size = self._ctx.block_size
        found = pages_of(plan.paged.tables, plan.paged.lengths, batch.seq_lens, size)
        for kind, wrapper in plan.wrappers.items():
            arguments, named = self._decoding(kind, found)
            wrapper.plan(*arguments, **named)

    def _decoding(self, kind: Kind, found: Pages) -> tuple[tuple[Any, ...], dict[str, Any]]:
        sizes = (kind.heads, kind.kv_heads, kind.dim, self._ctx.block_size)
        return (found.starts, found.places, found.last, *sizes), self._named(kind)

    def _prompting(self, kind: Kind, starts: Tensor, found: Pages) -> tuple[tuple[Any, ...], dict[str, Any]]:
        sizes = (kind.heads, kind.kv_heads, kind.dim, self._ctx.block_size)
        return (starts, found.starts, found.places, found.last, *sizes), {**self._named(kind), "causal": True}

    def _named(self, kind: Kind) -> dict[str, Any]:
        return kind.arguments(self._ctx, splits=self._options.splits)

    def _new_prompts(self) -> Any:
        return BatchPrefillWithPagedKVCacheWrapper(self._workspace(), LAYOUT)

    def _new_tokens(self, kind: Kind, **named: Any) -> Any:
        return BatchDecodeWithPagedKVCacheWrapper(
            self._workspace(), LAYOUT, use_tensor_cores=kind.tensor_cores, **named
        )

    def _workspace(self) -> Tensor:
        """Return the workspace of all wrappers: they run one after the other."""
        if self._space is None:
            size = self._options.workspace_mib << 20
            self._space = torch.zeros(size, dtype=torch.uint8, device=self._ctx.device)
        return self._space


class FlashInferLayer(PagedLayer):
    """Attention of one layer."""

    def __init__(self, site: AttentionSite, ctx: AttentionContext) -> None:
        super().__init__(site, ctx)
        self._kind = kind_of(site)
        self._rounds = ctx.kv_dtype.itemsize == 1
        self._scales = (1.0, 1.0)

    def use_scales(self, key: Tensor, value: Tensor) -> None:
        """Divide keys and values of a float8 cache by these before they are rounded."""
        self._scales = (float(key), float(value))

    def _stored(self, x: Tensor, *, key: bool) -> Tensor:
        if not self._rounds:
            return super()._stored(x, key=key)
        dtype = self._ctx.kv_dtype
        most = largest(dtype)
        return (x.float() / self._scales[0 if key else 1]).clamp(-most, most).to(dtype)

    def _attend(self, q: Tensor, kv: Tensor, plan: InferPlan) -> Tensor:  # type: ignore[override]
        wrapper = plan.wrappers[self._kind]
        if isinstance(wrapper, Fenced):
            wrapper = wrapper.wrapper
        named: dict[str, Any] = {}
        if self._rounds:
            named = {"k_scale": self._scales[0], "v_scale": self._scales[1]}
        out: Tensor = wrapper.run(q.contiguous(), kv, **named)
        return out
