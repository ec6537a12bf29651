"""The quantization driver `int8`: weights of any checkpoint rounded to 8 bits while they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_cpu.forms import Dense, Form, RoundedInt8
from core_plugin_cpu.options import Int8Options
from core_plugin_cpu.packed_layers import PackedLayer

if TYPE_CHECKING:
    from core.api import LayerQuant, LayerSite, QuantContext


class Int8Scheme:
    """One scale per output channel; activations rounded per token as they come, or left as they are."""

    def __init__(self, ctx: QuantContext) -> None:
        options = Int8Options.model_validate(dict(ctx.options))
        self._dtype, self._head = ctx.dtype, options.head
        self._rounded = RoundedInt8(options.activations)

    def for_site(self, site: LayerSite) -> LayerQuant:
        """Return how this layer is stored: the embedding and the output projection in the dtype, unless asked for."""
        form: Form = self._rounded if site.kind == "linear" or self._head else Dense(self._dtype)
        return PackedLayer(site, self._dtype, [form] * len(site.parts))
