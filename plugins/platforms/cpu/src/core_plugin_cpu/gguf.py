"""The quantization driver `cpu_gguf`: GGUF blocks multiplied as they are stored."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from core_plugin_cpu.forms import Blocks, Form
from core_plugin_cpu.native import blocks
from core_plugin_cpu.native.packed import Format
from core_plugin_cpu.options import BlockOptions
from core_plugin_cpu.packed_layers import PackedLayer
from core_plugin_cpu.plain import PlainForms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core.api import LayerQuant, LayerSite, QuantContext

_LOG = logging.getLogger(__name__)
_PLAIN = frozenset({"F32", "F16", "BF16"})


class GGUFScheme:
    """Every tensor in blocks of its own type; the checkpoint's `tensors` says which (name -> type).

    A tensor of a type without a kernel, or one that the checkpoint does not list, is decoded to the compute dtype.
    """

    def __init__(self, ctx: QuantContext) -> None:
        self._dtype = ctx.dtype
        options = BlockOptions.model_validate(dict(ctx.options))
        self._asked = options.asked
        self._plain = PlainForms("cpu_gguf", ctx.dtype, options)
        self._types = cast("Mapping[str, str]", ctx.checkpoint.get("tensors", {}))
        decoded = sorted({kind for kind in self._types.values() if kind not in blocks.FORMATS} - _PLAIN)
        if decoded:
            _LOG.info("no kernel for GGUF type %s: these weights are decoded to %s", ", ".join(decoded), ctx.dtype)

    def for_site(self, site: LayerSite) -> LayerQuant:
        """Return how this layer is stored."""
        modules = [f"{site.prefix}.{part}" if part else site.prefix for part, _ in site.parts]
        forms = [self._form(f"{module}.weight", site) for module in modules]
        return PackedLayer(site, self._dtype, forms, asked=self._asked)

    def _form(self, name: str, site: LayerSite) -> Form:
        kind = self._types.get(name, "")
        return Blocks(Format[kind]) if kind in blocks.FORMATS else self._plain.form(site)
