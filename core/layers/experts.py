"""Routers and experts, as models get them."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Choose the experts of each token, and weigh them."""
        correction = None if self._correction is None else self._correction()
        weights, ids = self._route(self._logits(x), correction, self._routing)
        return weights, ids


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
