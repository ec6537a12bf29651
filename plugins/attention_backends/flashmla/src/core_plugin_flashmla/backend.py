"""The backend: latent attention, by the library's dense kernel."""

from __future__ import annotations

import torch
from core_plugin_accelerator.latents import PagedLatent, latent_layout
from core_plugin_accelerator.paged import PagedBackend, PagedLayer
from flash_mla import flash_mla_with_kvcache
from torch import Tensor

from core.api.attention import AttentionContext, AttentionSite, BatchView, KVLayout, LatentSite
from core.api.errors import PluginError
from core.api.steps import StepShape
from core_plugin_flashmla.plan import MlaPlan, plan_of


class FlashMlaBackend(PagedBackend):
    """Latent attention by FlashMLA."""

    def __init__(self, ctx: AttentionContext) -> None:
        super().__init__(ctx)
        self._first: dict[int, int] = {}

    def layer(self, site: AttentionSite) -> PagedLayer:
        """Refuse a layer that keeps keys and values. Raises `PluginError` CORE-P203."""
        raise PluginError(
            "CORE-P203",
            f"flashmla has latent attention alone, and layer {site.layer} keeps keys and values.",
            hint="Take another --attention-backend, such as triton.",
        )

    def latent_layout(self, site: LatentSite) -> KVLayout:
        """Return the blocks of a latent layer."""
        return latent_layout(site, self._ctx)

    def latent(self, site: LatentSite) -> FlashMlaLayer:
        """Return the latent attention of one layer."""
        self._first[site.num_heads] = min(self._first.get(site.num_heads, site.layer), site.layer)
        return FlashMlaLayer(site, self._ctx, self._first)

    def plan(self, batch: BatchView) -> MlaPlan:  # type: ignore[override]
        """Describe a step."""
        return plan_of(super().plan(batch))

    def fixed_plan(self, shape: StepShape) -> MlaPlan:  # type: ignore[override]
        """Return a plan in memory that stays."""
        return plan_of(super().fixed_plan(shape), fixed=True)

    def refresh(self, plan: MlaPlan, batch: BatchView) -> None:  # type: ignore[override]
        """Fill it for a batch."""
        super().refresh(plan.paged, batch)


class FlashMlaLayer(PagedLatent):
    """Latent attention of one layer.

    Args:
        first: The first layer of those with so many heads: in a captured graph it divides the work for all of them.
    """

    def __init__(self, site: LatentSite, ctx: AttentionContext, first: dict[int, int]) -> None:
        super().__init__(site, ctx)
        self._first_of = first

    def _attend(self, moved: Tensor, q_rope: Tensor, kv: Tensor, plan: MlaPlan) -> Tensor:
        site = self._site
        q = torch.cat((moved, q_rope), dim=-1)
        anew = plan.fixed and self._first_of[site.num_heads] == site.layer
        found = [
            flash_mla_with_kvcache(
                q[piece.queries.tokens, None],
                kv[:, :, None],
                piece.queries.tables,
                piece.queries.lengths,
                site.latent_dim,
                *piece.divided(site.num_heads, anew=anew),
                softmax_scale=site.scale,
                causal=False,
            )[0][:, 0]
            for piece in plan.pieces
        ]
        return found[0] if len(found) == 1 else torch.cat(found)
