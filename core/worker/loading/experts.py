"""A checkpoint tensor that holds one thing of all experts, seen as one tensor for each."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from core.layers.params import misfit, release

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from core.api.weights import WeightTensor


class ExpertTensor:
    """A `WeightTensor`: one of the equal parts of another's first dimension.

    Args:
        whole: The tensor of all experts; it is released with its last expert, as they are taken in order.
        count: Number of experts.
        shape: Of the expert's tensor.
    """

    def __init__(self, whole: WeightTensor, expert: int, count: int, name: str, shape: tuple[int, ...]) -> None:
        self.name, self.encoding, self.shape = name, whole.encoding, shape
        self._whole, self._expert, self._count = whole, expert, count

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the expert's values in `dtype`."""
        if self.encoding == "plain":
            return self.raw().to(dtype)
        return self._own(self._whole.dense(dtype)).reshape(self.shape)

    def raw(self) -> Tensor:
        """Return the expert's elements as they are stored."""
        stored = self._whole.raw()
        if self.encoding != "plain":
            return self._own(stored.flatten(0, -2))
        return self._own(stored).reshape(self.shape)

    def _own(self, rows: Tensor) -> Tensor:
        """Return the expert's share of the first dimension."""
        size = len(rows) // self._count
        return rows[self._expert * size : (self._expert + 1) * size]

    def release(self) -> None:
        """Say that the values were taken."""
        if self._expert == self._count - 1:
            release(self._whole)


def each_expert(tensor: WeightTensor, name: str, count: int | None = None) -> Iterator[ExpertTensor]:
    """Yield the tensors of the experts.

    Args:
        name: Has `{}` for the expert's number.
        count: Number of experts whose rows stand one under another; None: the first dimension counts the experts.

    Raises:
        CheckpointError: CORE-M122, the rows are not those of `count` experts.
    """
    if not tensor.shape:
        return
    rows, *columns = tensor.shape
    if count is None and len(columns) > 2:  # runs of packed codes have a dimension of their own
        columns = [columns[0], prod(columns[1:])]
    if count is not None and rows % count:
        raise misfit(tensor.name, tensor.shape, (-(-rows // count) * count, *columns))
    shape = tuple(columns) if count is None else (rows // count, *columns)
    for expert in range(count or rows):
        yield ExpertTensor(tensor, expert, count or rows, name.format(expert), shape)
