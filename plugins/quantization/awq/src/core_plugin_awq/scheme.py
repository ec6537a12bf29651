"""The quantization method `awq`: codes, zero points and scales decoded at load. Device-neutral, the reference form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from core_plugin_unquantized.layers import PlainLinear, plain_layer
from torch import Tensor

from core_plugin_awq.config import ORDER, AWQConfig

if TYPE_CHECKING:
    from core.api import LayerQuant, LayerSite, ParamBuilder, QuantContext, WeightTensor


class AWQScheme:
    """AWQ linears; everything else is plain."""

    def __init__(self, ctx: QuantContext) -> None:
        self._dtype, self._config = ctx.dtype, AWQConfig.read(ctx.checkpoint)

    def for_site(self, site: LayerSite) -> LayerQuant:
        """Return how this layer is stored."""
        if site.kind == "linear" and self._config.quantizes(site.prefix):
            return AWQLinear(site, self._dtype, self._config.group_size)
        return plain_layer(site, self._dtype)


class AWQLinear(PlainLinear):
    """A linear layer of 4-bit codes. Everything is turned so that outputs come first and parts can be stacked."""

    def __init__(self, site: LayerSite, dtype: torch.dtype, group_size: int) -> None:
        super().__init__(site, dtype)
        self._groups = 1 if group_size == -1 else -(-site.in_features // group_size)
        self._size = site.in_features if group_size == -1 else group_size

    def declare(self, params: ParamBuilder) -> None:
        """Declare `qweight (rows, in)`, `qzeros` and `scales (rows, groups)`, unpacked, and the bias."""
        parts = self._site.parts
        params.declare("qweight", (self._rows, self._site.in_features), torch.uint8, rows=parts)
        params.declare("qzeros", (self._rows, self._groups), torch.uint8, rows=parts)
        params.declare("scales", (self._rows, self._groups), torch.float32, rows=parts)
        self.declare_bias(params)

    def decode(self, param: str, tensor: WeightTensor) -> Tensor:
        """Return the codes one by one, the scales in float32."""
        if param in ("qweight", "qzeros"):
            return unpack(tensor.raw()).t()
        return tensor.dense(torch.float32).t() if param == "scales" else super().decode(param, tensor)

    def finalize(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the decoded weight, and the bias."""
        codes, zeros, scales = params.pop("qweight"), params.pop("qzeros"), params.pop("scales")
        group = torch.arange(self._site.in_features, device=codes.device) // self._size
        weight = (codes.float() - zeros.float()[:, group]) * scales[:, group]
        return {**params, "weight": weight.to(self._dtype)}


def unpack(words: Tensor) -> Tensor:
    """Return the nibbles of `words (rows, columns / 8)` int32 in their places: `(rows, columns)` uint8."""
    shifts = torch.arange(0, 32, 4, device=words.device, dtype=torch.int32)
    nibbles = (words.unsqueeze(-1) >> shifts) & 15
    place = torch.tensor(ORDER, device=words.device).argsort()
    return nibbles[..., place].flatten(1).to(torch.uint8)
