"""RMS norm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.layers.params import Parameterised, ParamGroup
from core.ops.norm import add_rms_norm, rms_norm

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from core.api.weights import WeightTensor
    from core.layers.params import Params


class RMSNorm(Parameterised):
    """RMS norm over the last dimension, of any leading shape (so that it also norms `(tokens, heads, head_dim)`)."""

    def __init__(self, eps: float) -> None:
        self._eps = eps

    def bind(self, params: Params) -> None:
        """Use these parameters from now on."""
        super().bind(params)
        self._weight = params["weight"]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the normalised `x`."""
        return rms_norm(x, self._weight, self._eps)

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return `(norm(x + residual), x + residual)`."""
        return add_rms_norm(x, residual, self._weight, self._eps)


def norm_group(layer: RMSNorm, size: int, prefix: str, dtype: torch.dtype) -> ParamGroup:
    """Return the parameters of a norm layer: one vector, never quantized."""

    def decode(param: str, tensor: WeightTensor) -> Tensor:
        return tensor.dense(dtype)

    group = ParamGroup(prefix, decode)
    group.declare("weight", (size,), dtype)
    group.read_by(layer, lambda params: params)
    return group
