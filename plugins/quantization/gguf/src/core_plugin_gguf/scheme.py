"""The `gguf` quantization method: weights are decoded at load and applied in the compute dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F  # noqa: N812

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import Tensor

    from core.api.quantization import LayerSite, ParamBuilder, QuantContext
    from core.api.weights import WeightTensor


class GGUFScheme:
    """Quantization of one GGUF checkpoint. Every tensor names its own encoding, so layers need no table."""

    def __init__(self, ctx: QuantContext) -> None:
        self.dtype = ctx.dtype

    def for_site(self, site: LayerSite) -> GGUFLayer:
        """Return how this layer is stored; plain and encoded tensors, also mixed in one layer, are all decoded."""
        return GGUFLayer(site, self.dtype)


class GGUFLayer:
    """A layer whose parameters are dense: `weight (rows, in)` and, if the site has one, `bias (rows,)`."""

    def __init__(self, site: LayerSite, dtype: torch.dtype) -> None:
        self.site = site
        self.dtype = dtype
        self._embeds = site.kind == "embedding"

    def declare(self, params: ParamBuilder) -> None:
        """Declare the parameters; several checkpoint tensors may be stacked into each."""
        rows = sum(count for _, count in self.site.parts)
        params.declare("weight", (rows, self.site.in_features), self.dtype, rows=self.site.parts)
        if self.site.bias:
            params.declare("bias", (rows,), self.dtype, rows=self.site.parts)

    def decode(self, param: str, tensor: WeightTensor) -> Tensor:
        """Return the tensor's values in the compute dtype."""
        return tensor.dense(self.dtype)

    def finalize(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the parameters as they are: dense weights need no packing."""
        return params

    def final_bytes(self) -> int:
        """Return the bytes of the dense weight."""
        return sum(count for _, count in self.site.parts) * self.site.in_features * self.dtype.itemsize

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Look up or multiply: `(tokens,) -> (tokens, in)`, or `(tokens, in) -> (tokens, rows)`."""
        if self._embeds:
            return F.embedding(x, params["weight"])
        return F.linear(x, params["weight"], params.get("bias"))
