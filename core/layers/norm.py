"""RMS norm and layer norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch

from core.api.forms import Stored
from core.layers.cuts import Cut, cut_tensor
from core.layers.guard import MISSING, Operand
from core.layers.params import Parameterised, ParamGroup

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.weights import WeightTensor
    from core.layers.guard import Place
    from core.layers.linear import AllReduce
    from core.layers.params import Params
    from core.ops.registry import Op


class Norm(Parameterised):
    """A norm over the last dimension.

    Args:
        place: Names the layer in errors.
        dtype: Of what it normalises.
        size: Of the last dimension.
        norm, add_norm: The forms of the operation to use.
    """

    _weights: tuple[Tensor | None, ...]

    def __init__(self, place: Place, dtype: torch.dtype, size: int, eps: float, norm: Op, add_norm: Op) -> None:
        self._place, self._dtype, self._size, self._eps = place, dtype, size, eps
        self._norm, self._add = norm, add_norm

    def __call__(self, x: Tensor) -> Tensor:
        """Return the normalised `x`. Raises `PluginError` as `QuantLayer` does."""
        normed: Any = MISSING
        cause: Exception | None = None
        try:
            if x.dtype is self._dtype and x.shape[-1] == self._size:
                normed = self._norm(x, *self._weights, self._eps)
                if normed.shape == x.shape:
                    return normed  # type: ignore[no-any-return]
        except Exception as error:
            cause = error
        return self._fail((x,), normed, cause)

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return `(norm(x + residual), x + residual)`. Raises `PluginError` as `QuantLayer` does."""
        normed: Any = MISSING
        cause: Exception | None = None
        try:
            shape, dtype = x.shape, self._dtype
            if x.dtype is dtype and residual.dtype is dtype and shape[-1] == self._size and residual.shape == shape:
                normed, total = self._add(x, residual, *self._weights, self._eps)
                if normed.shape == shape and total.shape == shape:
                    return normed, total
        except Exception as error:
            cause = error
        return self._fail((x, residual), normed, cause)

    def _fail(self, given: tuple[object, ...], result: object, cause: Exception | None) -> NoReturn:
        rows = given[0].shape[:-1] if isinstance(given[0], torch.Tensor) else ("tokens",)
        shape = (*rows, self._size)
        named = zip(("its input", "the residual"), given, strict=False)
        operands = [Operand(name, one, shape, self._dtype) for name, one in named]
        self._place.fail("the operation", operands, Operand("its result", result, shape, self._dtype), cause)


class RMSNorm(Norm):
    """RMS norm of any leading shape (so that it also norms `(tokens, heads, head_dim)`)."""

    def bind(self, params: Params) -> None:
        """Use these parameters from now on."""
        super().bind(params)
        self._weights = (params["weight"],)


class LayerNorm(Norm):
    """Layer norm, with or without a bias."""

    def bind(self, params: Params) -> None:
        """Use these parameters from now on."""
        super().bind(params)
        self._weights = params["weight"], params.get("bias")


class DividedRMSNorm(RMSNorm):
    """RMS norm of a dimension that ranks divide: the mean square is that of all of it.

    Args:
        share: What this rank has of the dimension.
        copies: Ranks that have the same share.
        all_reduce: Sums over the ranks.
    """

    def __init__(
        self, place: Place, dtype: torch.dtype, share: Cut, eps: float, copies: int, all_reduce: AllReduce
    ) -> None:
        self._whole, self._copies, self._all_reduce = share.whole, copies, all_reduce
        super().__init__(place, dtype, share.size, eps, self._normed, self._added)

    def _normed(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        squares = self._all_reduce(wide.square().sum(-1, keepdim=True))
        return (wide * torch.rsqrt(squares / (self._whole * self._copies) + eps) * weight.float()).to(x.dtype)

    def _added(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        total = x + residual
        return self._normed(total, weight, eps), total


def norm_group(
    layer: Norm, share: Cut, prefix: str, dtype: torch.dtype, *, bias: bool = False, offset: float = 0.0
) -> ParamGroup:
    """Return the parameters of a norm layer: one vector or two, never quantized.

    Args:
        offset: Added to the weight.
    """

    def decode(param: str, tensor: WeightTensor) -> Tensor:
        own = cut_tensor(tensor, Stored(param, (0, None)), (share, Cut.all(1)), prefix)
        if param != "weight" or not offset:
            return own.dense(dtype)
        # The sum is rounded once: a weight near 0 has bits that 1 + weight has no room for in 16.
        return (own.dense(torch.float32) + offset).to(dtype)

    group = ParamGroup(prefix, decode)
    group.declare("weight", (share.size,), dtype)
    if bias:
        group.declare("bias", (share.size,), dtype)
    group.read_by(layer, lambda params: params)
    return group
