"""Linear layers and embeddings: a quantization method's `apply` bound to its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.layers.params import Parameterised, ParamGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from core.api.quantization import LayerQuant


class QuantLayer(Parameterised):
    """A layer whose weights are stored and applied by a quantization method."""

    def __init__(self, quant: LayerQuant, group: ParamGroup) -> None:
        self.group = group
        self._apply = quant.apply
        tell_size: Callable[[], int] | None = getattr(quant, "final_bytes", None)
        group.read_by(self, quant.finalize, final_bytes=0 if tell_size is None else tell_size())

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer; shapes as in `LayerQuant.apply`."""
        return self._apply(x, self.params)


class Linear(QuantLayer):
    """`(tokens, in_features) -> (tokens, sum of out_features)`, bias included."""


class Embedding(QuantLayer):
    """`(tokens,) int -> (tokens, hidden)`."""
