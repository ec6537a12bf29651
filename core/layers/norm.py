"""RMS norm and layer norm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.layers.params import Parameterised, ParamGroup
from core.ops.norm import add_layer_norm, add_rms_norm, layer_norm, rms_norm

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from core.api.weights import WeightTensor
    from core.layers.params import Params
    from core.ops.registry import Op


class RMSNorm(Parameterised):
    """RMS norm over the last dimension, of any leading shape (so that it also norms `(tokens, heads, head_dim)`).

    Args:
        norm, add_norm: The forms of `rms_norm` and `add_rms_norm` to use.
    """

    def __init__(self, eps: float, norm: Op = rms_norm, add_norm: Op = add_rms_norm) -> None:
        self._eps = eps
        self._norm, self._add = norm, add_norm

    def bind(self, params: Params) -> None:
        """Use these parameters from now on."""
        super().bind(params)
        self._weight = params["weight"]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the normalised `x`."""
        normed: Tensor = self._norm(x, self._weight, self._eps)
        return normed

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return `(norm(x + residual), x + residual)`."""
        both: tuple[Tensor, Tensor] = self._add(x, residual, self._weight, self._eps)
        return both


class LayerNorm(Parameterised):
    """Layer norm over the last dimension, with or without a bias.

    Args:
        norm, add_norm: The forms of `layer_norm` and `add_layer_norm` to use.
    """

    def __init__(self, eps: float, norm: Op = layer_norm, add_norm: Op = add_layer_norm) -> None:
        self._eps = eps
        self._norm, self._add = norm, add_norm

    def bind(self, params: Params) -> None:
        """Use these parameters from now on."""
        super().bind(params)
        self._weight, self._bias = params["weight"], params.get("bias")

    def __call__(self, x: Tensor) -> Tensor:
        """Return the normalised `x`."""
        normed: Tensor = self._norm(x, self._weight, self._bias, self._eps)
        return normed

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return `(norm(x + residual), x + residual)`."""
        both: tuple[Tensor, Tensor] = self._add(x, residual, self._weight, self._bias, self._eps)
        return both


def norm_group(
    layer: RMSNorm | LayerNorm, size: int, prefix: str, dtype: torch.dtype, *, bias: bool = False
) -> ParamGroup:
    """Return the parameters of a norm layer: one vector or two, never quantized."""

    def decode(param: str, tensor: WeightTensor) -> Tensor:
        return tensor.dense(dtype)

    group = ParamGroup(prefix, decode)
    group.declare("weight", (size,), dtype)
    if bias:
        group.declare("bias", (size,), dtype)
    group.read_by(layer, lambda params: params)
    return group
