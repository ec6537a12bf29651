"""Routers and experts, as models get them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.ops.experts import weights_of

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.experts import Routing
    from core.api.layers import Activation, Parameter
    from core.layers.linear import AllReduce, Linear
    from core.layers.operations import Operation, WeightsLayer


class Router:
    """`(tokens, hidden) -> weights (tokens, top_k) float32, ids (tokens, top_k) int32`.

    Args:
        logits: A layer with one output for each expert, in float32.
        correction: A bias of the choice, `(experts,)` float32; None for none.
        route: The form of the operation `route`.
    """

    def __init__(self, logits: Linear, correction: Parameter | None, routing: Routing, route: Operation) -> None:
        self._logits, self._correction, self._routing, self._route = logits, correction, routing, route

    def __call__(self, x: Tensor, token_ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Choose the experts of each token, and weigh them."""
        correction = None if self._correction is None else self._correction()
        weights, ids = self._route(self._logits(x), correction, self._routing)
        return weights, ids


class TableRouter:
    """As `Router`, with the experts that a table names by a token's id: scores weigh them, and choose nothing.

    Args:
        logits: A layer with one output for each expert, in float32.
        table: `(vocabulary, top_k)` float32, ids of experts.
    """

    def __init__(self, logits: Linear, table: Parameter, routing: Routing) -> None:
        self._logits, self._table, self._routing = logits, table, routing

    def __call__(self, x: Tensor, token_ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Weigh the experts of each token. Raises `ValueError` without ids."""
        if token_ids is None:
            raise ValueError("experts are named by a table of token ids, and the router is called without any")
        ids = self._table()[token_ids].long()
        return weights_of(self._logits(x), ids, self._routing), ids.int()


class Experts:
    """`(tokens, hidden) -> (tokens, hidden)`.

    Args:
        widen, down: Products with the weights of all experts: into the inner size, and back.
        all_reduce: Sums over the ranks that divide the inner size; None: the result is this rank's addend, or all.
    """

    def __init__(
        self, widen: WeightsLayer, activation: Activation, down: WeightsLayer, all_reduce: AllReduce | None
    ) -> None:
        self._widen, self._activation, self._down, self._all_reduce = widen, activation, down, all_reduce

    def __call__(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """Return the weighted sum of what the chosen experts make of each token."""
        inner = self._activation(self._widen(x, ids))
        out: Tensor = self._down(inner, weights, ids)
        return out if self._all_reduce is None else self._all_reduce(out)
