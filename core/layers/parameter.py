"""Tensors of the checkpoint that no layer multiplies with, and tables of values by position."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from core.layers.cuts import Cut
from core.layers.params import Parameterised, ParamGroup, misfit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from core.api.weights import WeightTensor
    from core.layers.cuts import Joined
    from core.layers.guard import LayerContext
    from core.layers.params import Params


class Parameter(Parameterised):
    """A tensor of the checkpoint, in the compute dtype."""

    def __call__(self) -> Tensor:
        """Return it."""
        return self._value

    def bind(self, params: Params) -> None:
        """Use this value from now on."""
        super().bind(params)
        (self._value,) = params.values()


class PositionTable:
    """Rows of a table by position, `(tokens,) int64 -> (tokens, size)`.

    Args:
        rows: Returns the first `n` rows, `(n, size)` float32.
        positions: Longest context that will be used, in tokens; None: until `prepare` says it.
    """

    def __init__(self, size: int, rows: Callable[[int], Tensor], positions: int | None, context: LayerContext) -> None:
        self._size, self._make, self._rows = size, rows, positions
        self._device, self._dtype = context.device, context.dtype

    def prepare(self, rows: int) -> None:
        """Make the table for the first `rows` positions: those that the KV cache has room for."""
        self._rows = rows if self._rows is None else min(rows, self._rows)
        self._table = self._made()

    def __call__(self, positions: Tensor) -> Tensor:
        """Return the rows of these positions."""
        return functional.embedding(positions, self._table)

    @cached_property
    def _table(self) -> Tensor:
        return self._made()

    def _made(self) -> Tensor:
        rows = self._rows or 1
        table = self._make(rows)
        if table.shape != (rows, self._size):
            raise ValueError(f"a table by position has shape {tuple(table.shape)}, not ({rows}, {self._size})")
        return table.to(device=self._device, dtype=self._dtype)


def parameter_group(
    layer: Parameter,
    names: Sequence[str],
    shape: tuple[int, ...],
    share: Cut | Joined,
    dtype: torch.dtype,
    *,
    axis: int = 0,
    stacked: bool = False,
    read: Callable[[Tensor], Tensor] | None = None,
) -> ParamGroup:
    """Return the group of a parameter, never quantized.

    Args:
        names: Of its tensors.
        shape: Of all of it.
        share: What this rank has of the dimension `axis`.
        stacked: Each tensor is an entry of the first dimension.
        read: Applied to the values of a tensor in float32.
    """
    chosen, whole, along = list(names), shape, axis
    if stacked:
        entries = share if axis == 0 else Cut.all(len(names))
        chosen = [names[entry] for entry in entries.take(torch.arange(len(names)), 0).tolist()]
        whole, along = shape[1:], axis - 1
    divided = bool(whole) and along >= 0
    own = (*whole[:along], share.size, *whole[along + 1 :]) if divided else whole

    def decode(param: str, tensor: WeightTensor) -> Tensor:
        values = tensor.dense(torch.float32)
        if values.shape != whole:
            raise misfit(tensor.name, tuple(values.shape), whole)
        values = share.take(values, along) if divided else values
        return (values if read is None else read(values)).to(dtype)

    group = ParamGroup(_common(chosen), decode)
    skip = len(group.prefix) + 1 if group.prefix else 0
    for name in chosen:
        group.declare(name[skip:], own, dtype)
    group.read_by(layer, (lambda params: {"value": torch.stack(list(params.values()))}) if stacked else dict)
    return group


def _common(names: Sequence[str]) -> str:
    """Return the module path that all names begin with."""
    modules = [name.split(".")[:-1] for name in names]
    shared = []
    for parts in zip(*modules, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)
