"""Plain weights in the compute dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.api import PLAIN, Part, Stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core.api import LayerSite, QuantContext, WeightForm, WeightTensor

MATRIX = (Stored("weight"),)


class Plain:
    """The format `none`: one matrix for each part. Other formats read with it what their checkpoints leave alone."""

    def __init__(self, ctx: QuantContext) -> None:
        self._dtype = ctx.dtype

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return the plain form."""
        return PLAIN

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return one matrix."""
        return MATRIX

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return the values as they are stored, for products that round them; encoded ones in the compute dtype."""
        tensor = tensors["weight"]
        return Part(PLAIN, tensor.raw() if tensor.encoding == "plain" else tensor.dense(self._dtype))
