"""The format `compressed-tensors`, int8: codes with a scale for each output, or one for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from core_plugin_unquantized.plain import Plain

from core.api import Part, Stored, WeightForm
from core_plugin_compressed_tensors.config import CompressedConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core.api import LayerSite, QuantContext, WeightTensor


class CompressedFormat(Plain):
    """`weight (rows, in)` int8 and `weight_scale`, `(rows, 1)` or `(1,)`. The parts of one layer may differ."""

    def __init__(self, ctx: QuantContext) -> None:
        super().__init__(ctx)
        self._config = CompressedConfig.read(ctx.checkpoint)
        self._form = self._config.form

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return the form of codes, or the plain form."""
        return self._form if self._config.quantizes(site, part) else super().form(site, part)

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return codes and scales of a quantized layer."""
        if not self._config.quantizes(site, part):
            return super().stored(site, part)
        return Stored("weight"), Stored("weight_scale", (0 if self._config.by_channel else None, None))

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return codes and scales as they are stored."""
        if not self._config.quantizes(site, part):
            return super().read(site, part, tensors)
        codes = tensors["weight"].raw()
        if codes.dtype != torch.int8:
            raise self._config.contradicted(f"'{tensors['weight'].name}' holds {codes.dtype}, not torch.int8")
        scales = tensors["weight_scale"].dense(torch.float32)
        return Part(self._form, codes, scales.view(len(codes) if self._config.by_channel else 1, 1))
