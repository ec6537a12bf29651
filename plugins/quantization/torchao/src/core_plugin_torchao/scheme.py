"""The format `torchao`: weights as torchao's tensor classes store them, flattened into plain tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_unquantized.plain import Plain

from core.api import Part, Stored
from core_plugin_torchao.config import TorchAOConfig
from core_plugin_torchao.runs import check_tiles
from core_plugin_torchao.tensors import READINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core.api import LayerSite, QuantContext, WeightForm, WeightTensor


class TorchAO(Plain):
    """The tensor `name` of a weight's class is called `_weight_name`. The class follows from the configuration."""

    def __init__(self, ctx: QuantContext) -> None:
        super().__init__(ctx)
        self._config = TorchAOConfig.read(ctx.checkpoint)

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return the form of codes, or the plain form."""
        layout = self._config.layout(site, part)
        return super().form(site, part) if layout is None else layout.form

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return the tensors of a quantized layer."""
        layout = self._config.layout(site, part)
        return super().stored(site, part) if layout is None else READINGS[layout.tensor].stored(layout.form)

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return codes, scales and zero points. Raises `CheckpointError` CORE-M160."""
        layout = self._config.layout(site, part)
        if layout is None:
            return super().read(site, part, tensors)
        outputs = dict(site.parts)[part]
        if site.kind == "experts" and layout.form.scale != "float32":
            check_tiles(tensors, outputs)
        return READINGS[layout.tensor].read(layout.form, (outputs, site.in_features), tensors)
