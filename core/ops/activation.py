"""Activations, plain (element by element) and gated.

Gated: `(..., 2 * size)` as `[gate, up]` -> `act(gate) * up`, `(..., size)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def silu_and_mul(x: Tensor) -> Tensor:
    """SwiGLU: `(..., 2 * size)` as `[gate, up]` -> `silu(gate) * up`, `(..., size)`."""
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)


def gelu_and_mul(x: Tensor) -> Tensor:
    """GeGLU with the exact (erf) GELU: `(..., 2 * size)` as `[gate, up]` -> `gelu(gate) * up`, `(..., size)`."""
    gate, up = x.chunk(2, dim=-1)
    return functional.gelu(gate).mul_(up)


def gelu_tanh_and_mul(x: Tensor) -> Tensor:
    """GeGLU with the tanh approximation of GELU, otherwise as `gelu_and_mul`."""
    gate, up = x.chunk(2, dim=-1)
    return functional.gelu(gate, approximate="tanh").mul_(up)


class Gated:
    """The gated form of a plain activation: `[gate, up]` -> `activation(gate) * up`."""

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        self._activation = activation

    def __call__(self, x: Tensor) -> Tensor:
        """`(..., 2 * size) -> (..., size)`."""
        gate, up = x.chunk(2, dim=-1)
        return self._activation(gate) * up


def relu(x: Tensor) -> Tensor:
    """`max(x, 0)`."""
    return functional.relu(x)


def silu(x: Tensor) -> Tensor:
    """`x * sigmoid(x)`."""
    return functional.silu(x)


def gelu(x: Tensor) -> Tensor:
    """The exact (erf) GELU, element by element."""
    return functional.gelu(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh approximation of GELU, element by element."""
    return functional.gelu(x, approximate="tanh")


def relu_squared(x: Tensor) -> Tensor:
    """`max(x, 0) ** 2`."""
    return functional.relu(x).square()


def sigmoid(x: Tensor) -> Tensor:
    """`1 / (1 + exp(-x))`."""
    return torch.sigmoid(x)


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return torch.tanh(x)


def quick_gelu(x: Tensor) -> Tensor:
    """The sigmoid approximation of GELU: `x * sigmoid(1.702 * x)`."""
    return x * torch.sigmoid(x * 1.702)
