"""Mixtures of experts: how tokens are routed, and what routers and experts are. Torch-free to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from core.api.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor


class Routing(Record):
    """How experts are chosen for a token by the router's logits, and how their results are weighed.

    The scores of all experts are computed, the best experts are chosen, and their scores are the weights.

    Attributes:
        top_k: Experts of a token.
        score: Function of the logits: `softmax` over the experts, `sigmoid`, or `sqrt_softplus`, the root of
            `log(1 + exp(logit))`.
        chosen_only: The softmax is over the chosen experts alone: the choice is by the logits themselves.
        correction: Each expert has a bias that is added to its score for the choice, and not to its weight.
        groups: The experts are so many groups of neighbours.
        top_groups: A token's experts are of so many of these groups.
        group_by: What groups are chosen by: the `max` of their experts' scores, or the sum of the two best (`top2`).
        renormalize: Weights are divided by their sum.
        eps: Added to that sum.
        factor: Factor of the weights, last.
        cap: Soft cap of the logits, of which all else is made: they become `cap * tanh(logits / cap)`. 0: none.
    """

    top_k: int
    score: Literal["softmax", "sigmoid", "sqrt_softplus"] = "softmax"
    chosen_only: bool = False
    correction: bool = False
    groups: int = 1
    top_groups: int = 1
    group_by: Literal["max", "top2"] = "max"
    renormalize: bool = False
    eps: float = 0.0
    factor: float = 1.0
    cap: float = 0.0

    def _faults(self) -> Iterable[str]:
        if self.top_k < 1:
            yield f"top_k: {self.top_k} experts cannot be chosen"
        if not 1 <= self.top_groups <= self.groups:
            yield f"top_groups: {self.top_groups} of {self.groups} groups cannot be chosen"
        if self.cap < 0:
            yield f"cap: {self.cap} is negative"


class Router(Protocol):
    """`(tokens, hidden) -> weights (tokens, top_k) float32, ids (tokens, top_k) int32`.

    With a table, `token_ids (tokens,)` name the experts of each token, and scores weigh them.
    """

    def __call__(self, x: Tensor, token_ids: Tensor | None = None) -> tuple[Tensor, Tensor]: ...


class Experts(Protocol):
    """`(tokens, hidden) -> (tokens, hidden)`: the weighted sum of what the chosen experts make of a token.

    `weights (tokens, k)` float32 and `ids (tokens, k)` int32 are a router's, or a model's own. An id that is no
    expert's (-1, or one behind the last) adds nothing. The sum is in the order of k, so that a token's result does not
    depend on the others.
    """

    def __call__(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor: ...
