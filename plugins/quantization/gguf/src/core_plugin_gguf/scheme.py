"""The format `gguf`: matrices in blocks of the file's own types."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Kind

from core.api import PLAIN, Part, Stored, WeightForm
from core_plugin_gguf.formats import FLOATS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core.api import LayerSite, QuantContext, WeightTensor

_FLOATS = frozenset(kind.name for kind in FLOATS)


class GGUFFormat:
    """Every tensor in its own type; the checkpoint's `tensors` says which (name -> type)."""

    def __init__(self, ctx: QuantContext) -> None:
        self._types = cast("Mapping[str, str]", ctx.checkpoint.get("tensors", {}))

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return the blocks of the part's matrix, or the plain form."""
        kind = self._kind(site, part)
        return PLAIN if kind in FLOATS else WeightForm(codes=f"gguf:{kind.name}")

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return one matrix; of blocks only whole ones can be taken."""
        kind = self._kind(site, part)
        if kind in FLOATS:
            return (Stored("weight"),)
        size, num_bytes = GGML_QUANT_SIZES[kind]
        return (Stored("weight", per=(1, size), unit=(1, num_bytes), encoding=f"gguf:{kind.name}"),)

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return the blocks as they are stored; weights of an update, for instance, come as plain numbers."""
        tensor = tensors["weight"]
        if tensor.encoding == "plain":
            return Part(PLAIN, tensor.raw())
        return Part(WeightForm(codes=tensor.encoding), tensor.raw(), decode=tensor.dense)

    def _kind(self, site: LayerSite, part: str) -> Kind:
        return Kind[self._types.get(f"{site.module(part)}.weight", "F32")]
