"""The activation of gpt-oss: SwiGLU whose gate and linear part are clamped."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class ClampedSwiGLU:
    """`gate * sigmoid(alpha * gate) * (up + 1)`, the gate at most `limit`, and `up` from minus to plus it."""

    def __init__(self, alpha: float, limit: float) -> None:
        self.alpha, self.limit = alpha, limit

    def __call__(self, x: Tensor) -> Tensor:
        """`(T, 2 * size)`, gate and up by turns, `-> (T, size)`."""
        wide = x.float()
        gate, up = wide[:, ::2], wide[:, 1::2]
        gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        return ((up + 1.0) * (gate * (gate * self.alpha).sigmoid())).to(x.dtype)
