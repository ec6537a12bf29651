"""Activations, plain (element by element) and gated.

Gated: `(..., 2 * size)` as `[gate, up]` -> `act(gate) * up`, `(..., size)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

if TYPE_CHECKING:
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
