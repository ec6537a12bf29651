"""The backend: plans by FlashInfer's wrappers, and the attention of one layer."""

from __future__ import annotations

from typing import Any

import torch
from core_plugin_accelerator.latents import latent_layout
from core_plugin_accelerator.paged import PagedBackend, PagedLayer
from torch import Tensor

from core.api.attention import AttentionContext, AttentionSite, BatchView, KVLayout, LatentSite
from core.api.steps import StepShape
from core_plugin_flashinfer.kind import Kind, LatentKind, kind_of, largest, latent_kind_of
from core_plugin_flashinfer.latent import FlashInferLatent, LatentPlanning
from core_plugin_flashinfer.options import FlashInferOptions
from core_plugin_flashinfer.planning import Planning, planning_of
from core_plugin_flashinfer.step import InferPlan, step_pages
from core_plugin_flashinfer.wrappers import wrapper_of


class FlashInferBackend(PagedBackend):
    """Paged attention by FlashInfer. Kinds of layers have plans of their own, and one workspace."""

    def __init__(self, ctx: AttentionContext) -> None:
        super().__init__(ctx)
        self._options = FlashInferOptions.model_validate(dict(ctx.options))
        self._layers: dict[int, Kind | LatentKind] = {}
        self._plannings: dict[Kind | LatentKind, Planning] = {}
        self._space: Tensor | None = None

    def layer(self, site: AttentionSite) -> FlashInferLayer:
        """Return the attention of one layer; later plans cover it."""
        kind = self._layers[site.layer] = kind_of(site)
        if kind not in self._plannings:
            self._plannings[kind] = planning_of(kind, self._ctx, self._options, self._workspace)
        return FlashInferLayer(site, self._ctx)

    def latent_layout(self, site: LatentSite) -> KVLayout:
        """Return the blocks of a latent layer."""
        return latent_layout(site, self._ctx)

    def latent(self, site: LatentSite) -> FlashInferLatent:
        """Return the latent attention of one layer; later plans cover it."""
        kind = self._layers[site.layer] = latent_kind_of(site)
        if kind not in self._plannings:
            self._plannings[kind] = LatentPlanning(kind, self._ctx, self._options, self._workspace)
        return FlashInferLatent(site, self._ctx)

    def plan(self, batch: BatchView) -> InferPlan:  # type: ignore[override]
        """Plan a step for those of the layers made so far that the batch is for."""
        plan = InferPlan(super().plan(batch))
        if not len(batch.slots):
            return plan
        step = step_pages(plan.paged, plan.paged.seq_lens, self._ctx.block_size, batch.query_starts)
        wanted = self._layers if batch.layers is None else {one for one in self._layers if one in batch.layers}
        for kind in dict.fromkeys(self._layers[one] for one in wanted):
            plan.wrappers[kind] = self._plannings[kind].plan(step)
        return plan

    def fixed_plan(self, shape: StepShape) -> InferPlan:  # type: ignore[override]
        """Return a plan whose wrappers read memory that stays."""
        plan = InferPlan(super().fixed_plan(shape))
        for kind in dict.fromkeys(self._layers.values()):
            plan.wrappers[kind] = self._plannings[kind].fixed(shape.num_rows, plan.paged.tables.numel())
        return plan

    def refresh(self, plan: InferPlan, batch: BatchView) -> None:  # type: ignore[override]
        """Fill it for a batch: FlashInfer plans anew, from the host's lengths."""
        super().refresh(plan.paged, batch)
        step = step_pages(plan.paged, batch.seq_lens, self._ctx.block_size)
        for kind, wrapper in plan.wrappers.items():
            self._plannings[kind].replan(wrapper, step)

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
        self._sinks: Tensor | None = None

    def use_scales(self, key: Tensor, value: Tensor) -> None:
        """Divide keys and values of a float8 cache by these before they are rounded."""
        self._scales = (float(key), float(value))

    def use_sinks(self, sinks: Tensor) -> None:
        """Count `sinks (heads,)` in the softmax of each query."""
        self._sinks = sinks.to(self._ctx.device, torch.float32).contiguous()

    def _stored(self, x: Tensor, *, key: bool) -> Tensor:
        if not self._rounds:
            return super()._stored(x, key=key)
        dtype = self._ctx.kv_dtype
        most = largest(dtype)
        return (x.float() / self._scales[0 if key else 1]).clamp(-most, most).to(dtype)

    def _attend(self, q: Tensor, kv: Tensor, plan: InferPlan) -> Tensor:  # type: ignore[override]
        wrapper, named = wrapper_of(plan, self._kind), dict[str, Any]()
        if self._rounds:
            named = {"k_scale": self._scales[0], "v_scale": self._scales[1]}
        # What a kernel with sinks takes besides: the sinks, and a scale of its own.
        extra = () if self._sinks is None else (self._sinks, self._kind.scale)
        out: Tensor = wrapper.run(q.contiguous(), kv, *extra, **named)
        return out
