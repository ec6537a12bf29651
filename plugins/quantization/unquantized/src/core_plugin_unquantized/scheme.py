"""Plain weights in the compute dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import Tensor

    from core.api.quantization import LayerQuant, LayerSite, ParamBuilder, QuantContext
    from core.api.weights import WeightTensor


class Plain:
    """The scheme `none`."""

    def __init__(self, ctx: QuantContext) -> None:
        self._dtype = ctx.dtype

    def for_site(self, site: LayerSite) -> LayerQuant:
        """Return how this layer is stored: one matrix, and a bias if it has one."""
        if site.kind == "embedding":
            return PlainEmbedding(site, self._dtype)
        return BiasedLinear(site, self._dtype) if site.bias else PlainLinear(site, self._dtype)


class PlainLinear:
    """`weight (rows, in_features)`, no bias."""

    def __init__(self, site: LayerSite, dtype: torch.dtype) -> None:
        self._site = site
        self._dtype = dtype

    def declare(self, params: ParamBuilder) -> None:
        """Declare the weight, stacked from the site's parts."""
        parts = self._site.parts
        rows = sum(count for _, count in parts)
        params.declare("weight", (rows, self._site.in_features), self._dtype, rows=parts)

    def decode(self, param: str, tensor: WeightTensor) -> Tensor:
        """Return the values in the compute dtype."""
        return tensor.dense(self._dtype)

    def finalize(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the parameters as they are."""
        return params

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return `x @ weight.T`."""
        return functional.linear(x, params["weight"])


class BiasedLinear(PlainLinear):
    """`weight (rows, in_features)` and `bias (rows,)`."""

    def declare(self, params: ParamBuilder) -> None:
        """Declare weight and bias, both stacked from the site's parts."""
        super().declare(params)
        parts = self._site.parts
        params.declare("bias", (sum(count for _, count in parts),), self._dtype, rows=parts)

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return `x @ weight.T + bias`."""
        return functional.linear(x, params["weight"], params["bias"])


class PlainEmbedding(PlainLinear):
    """`weight (vocabulary, hidden)`, looked up by row."""

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return the rows that the token ids name."""
        return functional.embedding(x, params["weight"])
