"""Linear layers and embeddings: a product bound to its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch

from core.layers.guard import MISSING, Operand, rows_of
from core.layers.params import Parameterised

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from core.api.quantization import LayerSite
    from core.layers.guard import LayerContext
    from core.layers.weights import WeightGroup


class ProductLayer(Parameterised):
    """A layer whose weight a product multiplies with.

    Attributes:
        site: Kind and sizes of the layer, as far as they are this rank's.
        splits: Outputs of each part, in order.
    """

    def __init__(
        self,
        site: LayerSite,
        group: WeightGroup,
        context: LayerContext,
        run: Callable[[Tensor, Mapping[str, Tensor]], Tensor],
    ) -> None:
        self.site, self.group = site, group
        self.splits = [rows for _, rows in site.parts]
        self._run = run
        self._place = context.place(f"{site.kind} '{site.prefix}'", group.owners[1])
        embeds = site.kind == "embedding"
        self._dtype = torch.int64 if embeds else context.dtype
        self._inputs = () if embeds else (site.in_features,)  # behind the tokens
        self._width = site.in_features if embeds else site.rows
        group.layers.append(self)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer; shapes as in `Product`.

        Raises:
            PluginError: CORE-P170, `x` does not fit; CORE-P171, CORE-P108: the product gave the wrong thing, or raised.
        """
        y: Any = MISSING
        cause: Exception | None = None
        try:
            if x.dtype is self._dtype and x.shape[1:] == self._inputs:
                y = self._run(x, self.params)
                if y.shape == (x.shape[0], self._width):
                    return y  # type: ignore[no-any-return]
        except Exception as error:
            cause = error
        return self._fail(x, y, cause)

    def _fail(self, x: object, y: object, cause: Exception | None) -> NoReturn:
        operand = Operand("its input", x, ("tokens", *self._inputs), self._dtype)
        self._place.fail("apply()", [operand], Operand("its result", y, (rows_of(x), self._width), None), cause)


class Linear(ProductLayer):
    """`(tokens, in_features) -> (tokens, sum of out_features)`, bias included."""

    def __init__(self, site: LayerSite, group: WeightGroup, context: LayerContext) -> None:
        super().__init__(site, group, context, group.product.apply)


class Embedding(ProductLayer):
    """`(tokens,) int64 -> (tokens, hidden)`."""

    def __init__(self, site: LayerSite, group: WeightGroup, context: LayerContext) -> None:
        super().__init__(site, group, context, group.product.look_up)
