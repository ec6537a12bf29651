"""The quantization driver `cpu_dense`: weights in the compute dtype, packed for the native products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_cpu.forms import Dense
from core_plugin_cpu.packed_layers import PackedLayer

if TYPE_CHECKING:
    from core.api import LayerQuant, LayerSite, QuantContext


class DenseScheme:
    """Reads plain weights, and encoded ones that can be decoded to plain (GGUF)."""

    def __init__(self, ctx: QuantContext) -> None:
        self._dtype = ctx.dtype

    def for_site(self, site: LayerSite) -> LayerQuant:
        """Return how this layer is stored."""
        return PackedLayer(site, self._dtype, [Dense(self._dtype)] * len(site.parts))
