"""The activation of gpt-oss: SwiGLU whose gate and linear part are clamped."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class ClampedSwiGLU:
    """`gate * sigmoid(alpha * gate) * (up + 1)`, the gate at most `limit`, and `up` from minus to plus it.

    Args:
        by_turns: Gate and up come by turns, number by number; else one after the other.
    """

    def __init__(self, alpha: float, limit: float, *, by_turns: bool = True) -> None:
        self.alpha, self.limit, self.by_turns = alpha, limit, by_turns

    def __call__(self, x: Tensor) -> Tensor:
        """`(T, 2 * size) -> (T, size)`."""
        wide = x.float()
        gate, up = (wide[:, ::2], wide[:, 1::2]) if self.by_turns else wide.chunk(2, dim=1)
        gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        return ((up + 1.0) * (gate * (gate * self.alpha).sigmoid())).to(x.dtype)
