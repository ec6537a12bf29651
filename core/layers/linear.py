"""Linear layers and embeddings: a product bound to its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch

from core.layers.guard import MISSING, Operand, rows_of
from core.layers.params import Parameterised

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from core.api.quantization import LayerSite
    from core.layers.guard import LayerContext
    from core.layers.weights import WeightGroup

    AllReduce = Callable[[Tensor], Tensor]


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


class ReducedLinear(Linear):
    """A linear layer that ranks divide by inputs: each multiplies its share, and the results are summed."""

    def __init__(self, site: LayerSite, group: WeightGroup, context: LayerContext, all_reduce: AllReduce) -> None:
        super().__init__(site, group, context)
        self._all_reduce = all_reduce

    def __call__(self, x: Tensor) -> Tensor:
        """Return the sum over the ranks."""
        return self._all_reduce(super().__call__(x))


class BlockLinear:
    """A block-diagonal linear layer: of each part of its outputs it gives those of all blocks, in order.

    Args:
        prefix: Its module path.
        blocks: The blocks of this rank.

    Attributes:
        splits: Outputs of each part, in order.
    """

    def __init__(self, prefix: str, blocks: Sequence[Linear], context: LayerContext) -> None:
        self._blocks = blocks
        self._inputs = [block.site.in_features for block in blocks]
        self._width, self._dtype = sum(self._inputs), context.dtype
        self.splits = [sum(part) for part in zip(*(block.splits for block in blocks), strict=True)]
        self._place = context.place(f"block-diagonal linear '{prefix}'", "core's own form")

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer. Raises `PluginError` CORE-P170: `x` does not fit."""
        if not isinstance(x, torch.Tensor) or x.shape[1:] != (self._width,) or x.dtype is not self._dtype:
            operand = Operand("its input", x, ("tokens", self._width), self._dtype)
            self._place.fail("apply()", [operand], Operand("its result", MISSING, (), None), None)
        given = x.split_with_sizes(self._inputs, dim=1)
        found = [
            block(own.contiguous()).split_with_sizes(block.splits, dim=1)
            for block, own in zip(self._blocks, given, strict=True)
        ]
        return torch.cat([piece for part in zip(*found, strict=True) for piece in part], dim=1)


class DividedEmbedding(Embedding):
    """An embedding of which each rank has some rows: ids of other ranks give zeros, and the results are summed.

    Args:
        first: The id of this rank's first row.
        all_reduce: Sums over the ranks; None: what the layer returns is this rank's addend.
    """

    def __init__(
        self, site: LayerSite, group: WeightGroup, context: LayerContext, first: int, all_reduce: AllReduce | None
    ) -> None:
        super().__init__(site, group, context)
        self._first, self._all_reduce = first, all_reduce

    def __call__(self, x: Tensor) -> Tensor:
        """Return `(tokens, hidden)`."""
        ids = x - self._first
        others = (ids < 0) | (ids >= self.site.rows)
        # Filled, not multiplied: the row that stands in may hold anything.
        rows = super().__call__(ids.masked_fill(others, 0)).masked_fill(others[:, None], 0)
        return rows if self._all_reduce is None else self._all_reduce(rows)
