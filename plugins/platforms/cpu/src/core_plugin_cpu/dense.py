"""The quantization driver `cpu_dense`: weights in the compute dtype, packed once for the native products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from core_plugin_cpu.native import gemm
from core_plugin_cpu.native.elementwise import gather

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core.api import LayerQuant, LayerSite, ParamBuilder, QuantContext, WeightTensor


class DenseScheme:
    """Reads plain weights, and encoded ones that can be decoded to plain (GGUF)."""

    def __init__(self, ctx: QuantContext) -> None:
        self._dtype = ctx.dtype

    def for_site(self, site: LayerSite) -> LayerQuant:
        """Return how this layer is stored."""
        return DenseEmbedding(site, self._dtype) if site.kind == "embedding" else DenseLinear(site, self._dtype)


class _Dense:
    """`weight (rows, in_features)` and, if the site has one, `bias (rows,)`, as the checkpoint fills them."""

    def __init__(self, site: LayerSite, dtype: torch.dtype) -> None:
        self._site, self._dtype = site, dtype
        self._rows = sum(count for _, count in site.parts)

    def declare(self, params: ParamBuilder) -> None:
        """Declare the parameters, stacked from the site's parts."""
        site = self._site
        params.declare("weight", (self._rows, site.in_features), self._dtype, rows=site.parts)
        if site.bias:
            params.declare("bias", (self._rows,), self._dtype, rows=site.parts)

    def decode(self, param: str, tensor: WeightTensor) -> Tensor:
        """Return the values in the compute dtype."""
        return tensor.dense(self._dtype)


class DenseLinear(_Dense):
    """A linear layer whose weight is packed in panels of output channels."""

    def finalize(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Pack the weight; the bias is added in float32."""
        packed = {"weight": gemm.pack(params["weight"]).data}
        return packed | {name: value.float() for name, value in params.items() if name == "bias"}

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return `x @ weight.T + bias`."""
        kind = gemm.Format.F32 if self._dtype == torch.float32 else gemm.Format.BF16
        weight = gemm.PackedWeight(kind, self._rows, self._site.in_features, params["weight"])
        return gemm.linear(x, weight, params.get("bias"))


class DenseEmbedding(_Dense):
    """The token embedding, looked up by row."""

    def finalize(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the parameters as they are."""
        return params

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return the rows that the token ids name."""
        return gather(params["weight"], x)
