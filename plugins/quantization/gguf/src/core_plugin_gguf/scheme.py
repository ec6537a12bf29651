"""The format `gguf`: matrices in blocks of the file's own types."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import torch

from core.api import PLAIN, Part, Stored, WeightForm
from core_plugin_gguf.formats import FLOATS
from core_plugin_gguf.kinds import SIZES, kind_named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from core.api import LayerSite, QuantContext, WeightTensor
    from core_plugin_gguf.kinds import Kind

_FLOATS = frozenset(kind.name for kind in FLOATS)


SCALE = "scale"
"""Suffix of the number that all values of a matrix are multiplied with."""


class GGUFFormat:
    """Every tensor in its own type; the checkpoint's `tensors` says which (name -> type)."""

    def __init__(self, ctx: QuantContext) -> None:
        self._types = cast("Mapping[str, str]", ctx.checkpoint.get("tensors", {}))

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return the blocks of the part's matrix, or the plain form."""
        kind = self._kind(site, part)
        return PLAIN if kind in FLOATS else WeightForm(codes=f"gguf:{kind.name}")

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return one matrix; of blocks only whole ones can be taken. One of NVFP4 may have a scale besides."""
        kind = self._kind(site, part)
        if kind in FLOATS:
            return (Stored("weight"),)
        size, num_bytes = SIZES[kind]
        blocks = Stored("weight", per=(1, size), unit=(1, num_bytes), encoding=f"gguf:{kind.name}")
        # Products that take blocks as they are stored know no further scale, and none of them has this type.
        scale = (Stored(SCALE, (None, None), optional=True),) if kind.name == "NVFP4" else ()
        return blocks, *scale

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return the blocks as they are stored; weights of an update, for instance, come as plain numbers."""
        tensor = tensors["weight"]
        if tensor.encoding == "plain":
            return Part(PLAIN, tensor.raw())
        form = WeightForm(codes=tensor.encoding)
        decode = partial(_scaled, tensor, tensors[SCALE].dense(torch.float32)) if SCALE in tensors else tensor.dense
        return Part(form, tensor.raw(), decode=decode)

    def _kind(self, site: LayerSite, part: str) -> Kind:
        return kind_named(self._types.get(f"{site.module(part)}.weight", "F32"))


def _scaled(blocks: WeightTensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    return blocks.dense(torch.float32).mul_(scale.view(())).to(dtype)
