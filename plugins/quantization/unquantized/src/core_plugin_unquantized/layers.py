"""One layer of plain weights; other schemes keep the layers that their checkpoints leave alone in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import Tensor

    from core.api import LayerSite, ParamBuilder, WeightTensor


def plain_layer(site: LayerSite, dtype: torch.dtype) -> PlainLinear:
    """Return how a layer in the compute dtype is stored and applied."""
    return PlainEmbedding(site, dtype) if site.kind == "embedding" else PlainLinear(site, dtype)


class PlainLinear:
    """`weight (rows, in_features)` and, if the site has one, `bias (rows,)`, in the compute dtype."""

    def __init__(self, site: LayerSite, dtype: torch.dtype) -> None:
        self._site, self._dtype = site, dtype
        self._rows = sum(count for _, count in site.parts)

    def declare(self, params: ParamBuilder) -> None:
        """Declare the parameters, stacked from the site's parts."""
        params.declare("weight", (self._rows, self._site.in_features), self._dtype, rows=self._site.parts)
        self.declare_bias(params)

    def declare_bias(self, params: ParamBuilder) -> None:
        """Declare the bias of a site that has one."""
        if self._site.bias:
            params.declare("bias", (self._rows,), self._dtype, rows=self._site.parts)

    def decode(self, param: str, tensor: WeightTensor) -> Tensor:
        """Return the values in the compute dtype."""
        return tensor.dense(self._dtype)

    def finalize(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the parameters as they are."""
        return params

    def final_bytes(self) -> int:
        """Return the bytes of the weight."""
        return self._rows * self._site.in_features * self._dtype.itemsize

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return `x @ weight.T`, plus the bias if there is one."""
        return functional.linear(x, params["weight"], params.get("bias"))


class PlainEmbedding(PlainLinear):
    """`weight (vocabulary, hidden)`, looked up by row."""

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return the rows that the token ids name."""
        return functional.embedding(x, params["weight"])
