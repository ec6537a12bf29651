"""Linear layers and embeddings: a quantization method's `apply` bound to its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch

from core.layers.guard import MISSING, Operand, rows_of
from core.layers.params import Parameterised, ParamGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from core.api.quantization import LayerQuant, LayerSite
    from core.layers.guard import LayerContext


class QuantLayer(Parameterised):
    """A layer whose weights are stored and applied by a quantization method."""

    def __init__(self, site: LayerSite, quant: LayerQuant, group: ParamGroup, context: LayerContext) -> None:
        self.group = group
        self._apply = quant.apply
        self._place = context.place(f"{site.kind} '{site.prefix}'", context.owners.quantization)
        embeds = site.kind == "embedding"
        self._dtype = torch.int64 if embeds else context.dtype
        self._inputs = () if embeds else (site.in_features,)  # behind the tokens
        self._width = site.in_features if embeds else sum(rows for _, rows in site.parts)
        tell_size: Callable[[], int] | None = getattr(quant, "final_bytes", None)
        group.read_by(self, quant.finalize, final_bytes=0 if tell_size is None else tell_size())

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer; shapes as in `LayerQuant.apply`.

        Raises:
            PluginError: CORE-P170, `x` does not fit; CORE-P171, CORE-P108: the method gave the wrong thing, or raised.
        """
        y: Any = MISSING
        cause: Exception | None = None
        try:
            if x.dtype is self._dtype and x.shape[1:] == self._inputs:
                y = self._apply(x, self.params)
                if y.shape == (x.shape[0], self._width):
                    return y  # type: ignore[no-any-return]
        except Exception as error:
            cause = error
        return self._fail(x, y, cause)

    def _fail(self, x: object, y: object, cause: Exception | None) -> NoReturn:
        operand = Operand("its input", x, ("tokens", *self._inputs), self._dtype)
        self._place.fail("apply()", [operand], Operand("its result", y, (rows_of(x), self._width), None), cause)


class Linear(QuantLayer):
    """`(tokens, in_features) -> (tokens, sum of out_features)`, bias included."""


class Embedding(QuantLayer):
    """`(tokens,) int64 -> (tokens, hidden)`."""
