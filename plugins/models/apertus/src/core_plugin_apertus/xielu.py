"""xIELU: a parabola for positive numbers, an exponential for negative ones, with slopes that are learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder


class XIELU:
    """`beta * x + alpha_p * x ** 2` where x is positive, `beta * x + alpha_n * (exp(x) - 1 - x)` elsewhere.

    Filled from `<path>.act_fn.alpha_p (1,)` and `alpha_n (1,)`, stored before softplus, and `beta ()`, which is a part
    of `alpha_n`.
    """

    def __init__(self, build: LayerBuilder, path: str) -> None:
        self.alpha_p = build.parameter(f"{path}.act_fn.alpha_p", (1,), read=_positive)
        self.alpha_n = build.parameter(f"{path}.act_fn.alpha_n", (1,), read=_positive)
        # A stack of one: a number that is a tensor without dimensions is not one of the rows' dtype.
        self.beta = build.parameter([f"{path}.act_fn.beta"], (1,))

    def __call__(self, x: Tensor) -> Tensor:
        """`(T, size) -> (T, size)`."""
        # In 16 bits, nothing would be left of exp(x) - 1 - x for small x.
        wide, beta = x.float(), self.beta()
        positive, negative = wide.relu(), wide.clamp(max=0.0)
        bent = positive * positive * self.alpha_p() + (negative.exp() - 1.0 - negative) * (self.alpha_n() + beta)
        return (bent + wide * beta).to(x.dtype)


def _positive(stored: Tensor) -> Tensor:
    return stored.exp().log1p()
