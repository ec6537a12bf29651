"""The quantization method `compressed-tensors`, int8. Device-neutral, the reference form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from core_plugin_unquantized.layers import PlainLinear, plain_layer
from torch import Tensor
from torch.nn import functional

from core_plugin_compressed_tensors.config import CompressedConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core.api import LayerQuant, LayerSite, ParamBuilder, QuantContext, WeightTensor


class CompressedScheme:
    """Int8 linears; everything else is plain."""

    def __init__(self, ctx: QuantContext) -> None:
        self._dtype, self._config = ctx.dtype, CompressedConfig.read(ctx.checkpoint)

    def for_site(self, site: LayerSite) -> LayerQuant:
        """Return how this layer is stored. The parts of one layer are all quantized, or none is."""
        part = site.parts[0][0]
        if site.kind == "linear" and self._config.quantizes(f"{site.prefix}.{part}" if part else site.prefix):
            return Int8Linear(site, self._dtype, rounds=self._config.rounds_activations)
        return plain_layer(site, self._dtype)


class Int8Linear(PlainLinear):
    """`weight (rows, in)` int8 and `weight_scale (rows, 1)`."""

    def __init__(self, site: LayerSite, dtype: torch.dtype, *, rounds: bool) -> None:
        super().__init__(site, dtype)
        self._rounds = rounds

    def declare(self, params: ParamBuilder) -> None:
        """Declare codes and scales, stacked from the site's parts, and the bias."""
        parts = self._site.parts
        params.declare("weight", (self._rows, self._site.in_features), torch.int8, rows=parts)
        params.declare("weight_scale", (self._rows, 1), torch.float32, rows=parts)
        self.declare_bias(params)

    def decode(self, param: str, tensor: WeightTensor) -> Tensor:
        """Return the codes as they are; one scale for every row, where the checkpoint has one for all."""
        if param == "weight":
            return tensor.raw()
        if param == "bias":
            return super().decode(param, tensor)
        scale = tensor.dense(torch.float32)
        return scale.reshape(1, 1).expand(self._rows_of(tensor.name), 1) if scale.numel() == 1 else scale.view(-1, 1)

    def final_bytes(self) -> int:
        """Return the bytes of the codes: one each."""
        return self._rows * self._site.in_features

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return `x @ (weight * weight_scale).T + bias`, `x` rounded to int8 per token if the checkpoint says so."""
        y = functional.linear(round_tokens(x) if self._rounds else x.float(), params["weight"].float())
        y = y * params["weight_scale"].view(1, -1)
        bias = params.get("bias")
        return (y if bias is None else y + bias).to(x.dtype)

    def _rows_of(self, name: str) -> int:
        module = name.rpartition(".")[0]
        return next(rows for part, rows in self._site.parts if not part or f".{module}".endswith(f".{part}"))


def round_tokens(x: Tensor) -> Tensor:
    """Return `x (tokens, in)` as float32 with every token rounded to 255 steps between its largest magnitudes."""
    x = x.float()
    scale = x.abs().amax(dim=-1, keepdim=True) / 127
    scale = torch.where(scale > 0, scale, 1.0)
    return torch.round(x / scale) * scale
