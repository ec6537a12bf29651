"""The format `bitsandbytes`: 8-bit integers with a scale for each output, or 4-bit codes in blocks of values."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from core_plugin_unquantized.packing import codes_of_bytes
from core_plugin_unquantized.plain import Plain

from core.api import Part, Stored
from core_plugin_bitsandbytes.config import BLOCK, INT8, BitsAndBytesConfig, contradicted
from core_plugin_bitsandbytes.state import MAP, STATE, TABLES, State, read_state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from core.api import LayerSite, QuantContext, WeightForm, WeightTensor

_ALONE = (None, None)


class BitsAndBytes(Plain):
    """`weight (out, in)` int8 and `SCB (out,)`, the largest magnitude of each row; or `weight (out * in / 2, 1)` uint8,
    the first of two codes in the high bits, and its state. A weight of four bits is not divided among ranks.
    """

    def __init__(self, ctx: QuantContext) -> None:
        super().__init__(ctx)
        self._config = BitsAndBytesConfig.read(ctx.checkpoint)

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return the form of codes, or the plain form."""
        if not self._config.quantizes(site, part):
            return super().form(site, part)
        return self._config.form(site.in_features)

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return the tensors of a quantized layer."""
        if not self._config.quantizes(site, part):
            return super().stored(site, part)
        if self._config.codes == "int8":
            return Stored("weight"), Stored("SCB", (0, None)), Stored("weight_format", _ALONE, optional=True)
        size = dict(site.parts)[part] * site.in_features
        nested = ("weight.nested_absmax", "weight.nested_quant_map")
        return (
            Stored("weight", _ALONE, count=-(-size // 2), whole=True),
            Stored("weight.absmax", _ALONE, count=0),
            Stored(MAP, _ALONE, count=16),
            Stored(f"{STATE}{self._config.codes}", _ALONE, count=0),
            *(Stored(name, _ALONE, count=0, optional=True) for name in nested),
        )

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return codes and scales."""
        if not self._config.quantizes(site, part):
            return super().read(site, part, tensors)
        weight = tensors["weight"]
        codes, due = weight.raw(), torch.int8 if self._config.codes == "int8" else torch.uint8
        if codes.dtype != due:
            raise contradicted(f"'{weight.name}' holds {codes.dtype}, not {due}")
        if self._config.codes == "int8":
            return Part(INT8, codes, tensors["SCB"].dense(torch.float32).view(-1, 1) / 127)
        form, state = (
            self._config.form(site.in_features),
            read_state(self._config.codes, tensors, dict(site.parts)[part] * site.in_features),
        )
        pairs = codes.view(dict(site.parts)[part], -1)
        if form.codes == self._config.codes:  # core's own codes: blocks and table are those of the form
            if state.block != BLOCK:
                raise contradicted(f"'{weight.name}' has blocks of {state.block} values, not {BLOCK}")
            if not torch.allclose(state.table, TABLES[form.codes], atol=1e-4):
                raise contradicted(f"'{tensors[MAP].name}' is not the table of {form.codes}")
            return Part(form, _high_first(pairs), state.scales.view(len(pairs), -1))
        return Part(form, pairs, decode=partial(_opened, pairs, state))


def _high_first(pairs: Tensor) -> Tensor:
    """Return codes one by one: the first of two is in the high bits of a byte."""
    return codes_of_bytes(pairs).view(len(pairs), -1, 2).flip(-1).flatten(1)


def _opened(pairs: Tensor, state: State, dtype: torch.dtype) -> Tensor:
    """Return the values of codes, whose scales follow each other through the rows."""
    codes = _high_first(pairs)
    values = state.table[codes.long()].flatten()
    scales = state.scales.repeat_interleave(state.block)[: values.numel()]
    return (values * scales).view(codes.shape).to(dtype)
