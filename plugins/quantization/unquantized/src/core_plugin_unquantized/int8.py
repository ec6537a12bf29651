"""Weights of any checkpoint rounded to 8 bits while they are read, with one scale for each output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from core.api import Part
from core_plugin_unquantized.forms import INT8
from core_plugin_unquantized.options import Int8Options
from core_plugin_unquantized.plain import Plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from core.api import LayerSite, QuantContext, WeightForm, WeightTensor


CHUNK = 1 << 16
"""Values rounded at once."""


class Int8(Plain):
    """The format `int8`: linear layers and experts are rounded; embeddings, heads and routers stay plain."""

    def __init__(self, ctx: QuantContext) -> None:
        super().__init__(ctx)
        bits = Int8Options.model_validate(dict(ctx.options)).activations
        self._form = INT8 if bits == 8 else INT8.replace(activations="as_is")

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return 8 bits with a scale for each output, or the plain form."""
        return self._form if site.inner else super().form(site, part)

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return the rounded codes of an inner layer. Encoded tensors are decoded first."""
        if not site.inner:
            return super().read(site, part, tensors)
        tensor = tensors["weight"]
        codes, scales = round_rows(tensor.raw() if tensor.encoding == "plain" else tensor.dense(torch.float32))
        return Part(self._form, codes, scales)


def round_rows(weight: Tensor, dtype: torch.dtype = torch.int8) -> tuple[Tensor, Tensor]:
    """Return `weight (n, k)` in int8 or a float8 dtype, and the scale of each row `(n, 1)`.

    The scale is the row's largest magnitude over 127, or over the largest number of the dtype; 1 for a row of zeros.
    """
    whole = dtype == torch.int8
    most = 127.0 if whole else torch.finfo(dtype).max
    codes = torch.empty(weight.shape, dtype=dtype, device=weight.device)
    scales = torch.empty(len(weight), 1, device=weight.device)
    step = max(1, CHUNK // weight.shape[1])  # a few rows at a time: no float32 copies of all of them
    for rows, code, scale in zip(weight.split(step), codes.split(step), scales.split(step), strict=True):
        values = rows.float()
        largest = values.abs().amax(dim=1, keepdim=True) / most
        scale.copy_(torch.where(largest > 0, largest, 1.0))
        values = values / scale
        code.copy_(values.round() if whole else values.clamp(-most, most))
    return codes, scales
