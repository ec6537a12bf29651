"""The format `mx`: codes of 4 or 8 bits, and a power of two for 32 inputs each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from core_plugin_unquantized.packing import codes_of_bytes
from core_plugin_unquantized.plain import Plain

from core.api import PLAIN, Part, Stored
from core_plugin_mx.config import FP4, RUN, MXConfig, MXOptions, contradicted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core.api import LayerSite, QuantContext, WeightForm, WeightTensor

_BYTES = (torch.uint8, torch.float8_e8m0fnu)

PADDED = 256
"""Experts in blocks may be stored with sizes up to a multiple of this, which some kernels want."""


class MX(Plain):
    """`weight`: two codes to a byte, the first in its low bits, `(rows, in / 2)`, or e4m3, `(rows, in)`.

    `weight_scale`: the bytes of exponents, `(rows, in / 32)`. gpt-oss calls them `weight_blocks` and `weight_scales`.
    """

    def __init__(self, ctx: QuantContext) -> None:
        super().__init__(ctx)
        self._config = MXConfig.read(ctx.checkpoint)
        self._rounds = MXOptions.model_validate(dict(ctx.options)).activations == "checkpoint"
        self._names = ("weight_blocks", "weight_scales") if self._config.blocks else ("weight", "weight_scale")

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return the form of codes, or the plain form."""
        form = self._config.form_of(site, part)
        return form if self._rounds else form.replace(activations="as_is")

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return codes and scales of a quantized layer."""
        form = self._config.form_of(site, part)
        if form == PLAIN:
            return super().stored(site, part)
        packed = {"per": (1, RUN), "unit": (1, RUN // 2)} if form.codes == FP4.codes else {}
        (codes, scales), padded = self._names, (PADDED, PADDED) if self._config.blocks else (1, 1)
        return Stored(codes, **packed, padded=padded), Stored(scales, per=(1, RUN), padded=padded)

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return codes one by one, and scales as they are stored."""
        form = self.form(site, part)
        if form == PLAIN:
            return super().read(site, part, tensors)
        codes, scales = (tensors[name].raw() for name in self._names)
        if scales.dtype not in _BYTES:
            raise contradicted(f"'{tensors[self._names[1]].name}' holds {scales.dtype}, not the bytes of exponents")
        if form.codes != FP4.codes:
            if codes.dtype != torch.float8_e4m3fn:
                raise contradicted(f"'{tensors[self._names[0]].name}' holds {codes.dtype}, not torch.float8_e4m3fn")
            return Part(form, codes, scales.view(torch.uint8))
        if codes.dtype != torch.uint8:
            raise contradicted(f"'{tensors[self._names[0]].name}' holds {codes.dtype}, not torch.uint8")
        return Part(form, codes_of_bytes(codes), scales.view(torch.uint8))
