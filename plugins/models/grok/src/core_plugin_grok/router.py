"""The router of Grok: shares of soft-capped logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder
    from core.api.layers import Parameter


@dataclass(frozen=True, slots=True)
class Capped:
    """Makes routers of so many experts, of which a token has `top_k`."""

    experts: int
    top_k: int
    cap: float

    def __call__(self, build: LayerBuilder, hidden_size: int, path: str) -> CappedRouter:
        """Return one, filled from `<path>.weight (experts, hidden_size)`."""
        # In 16 bits, experts of equal rank would change places.
        return CappedRouter(build.parameter(f"{path}.weight", (self.experts, hidden_size), dtype="float32"), self)


class CappedRouter:
    """A token's experts are those with the best logits, and their weights their shares of all experts.

    The shares are a softmax of `cap * tanh(logits / cap)`.
    """

    def __init__(self, weight: Parameter, given: Capped) -> None:
        self.weight, self.top_k, self.cap = weight, given.top_k, given.cap

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`(T, hidden) -> weights (T, top_k) float32, ids (T, top_k) int32`."""
        logits = x.float() @ self.weight().t()
        weights, ids = (logits.div(self.cap).tanh() * self.cap).softmax(-1).topk(self.top_k, dim=-1)
        return weights, ids.int()
