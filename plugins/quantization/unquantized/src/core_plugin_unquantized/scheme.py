"""Plain weights in the compute dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_unquantized.layers import plain_layer

if TYPE_CHECKING:
    from core.api import LayerQuant, LayerSite, QuantContext


class Plain:
    """The scheme `none`."""

    def __init__(self, ctx: QuantContext) -> None:
        self._dtype = ctx.dtype

    def for_site(self, site: LayerSite) -> LayerQuant:
        """Return how this layer is stored: one matrix, and a bias if it has one."""
        return plain_layer(site, self._dtype)
