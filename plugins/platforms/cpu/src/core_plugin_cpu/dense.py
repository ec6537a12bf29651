"""The quantization driver `cpu_dense`: weights in the compute dtype, packed for the native products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_cpu.options import DenseOptions
from core_plugin_cpu.plain import PlainForms

if TYPE_CHECKING:
    from core.api import LayerQuant, LayerSite, QuantContext


class DenseScheme:
    """Reads plain weights, and encoded ones that can be decoded to plain (GGUF)."""

    def __init__(self, ctx: QuantContext) -> None:
        self._forms = PlainForms("cpu_dense", ctx.dtype, DenseOptions.model_validate(dict(ctx.options)))

    def for_site(self, site: LayerSite) -> LayerQuant:
        """Return how this layer is stored."""
        return self._forms.layer(site)
