"""The quantization driver `int8`: weights of any checkpoint rounded to 8 bits while they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_cpu.forms import RoundedInt8
from core_plugin_cpu.options import Int8Options
from core_plugin_cpu.packed_layers import PackedLayer
from core_plugin_cpu.plain import PlainForms

if TYPE_CHECKING:
    from core.api import LayerQuant, LayerSite, QuantContext


class Int8Scheme:
    """Linears get one scale per output channel; activations are rounded per token as they come, or left as they are."""

    def __init__(self, ctx: QuantContext) -> None:
        options = Int8Options.model_validate(dict(ctx.options))
        self._dtype, self._others = ctx.dtype, PlainForms("int8", ctx.dtype, options)
        self._rounded = RoundedInt8(options.activations)

    def for_site(self, site: LayerSite) -> LayerQuant:
        """Return how this layer is stored."""
        if site.kind == "linear":
            return PackedLayer(site, self._dtype, [self._rounded] * len(site.parts))
        return self._others.layer(site)
