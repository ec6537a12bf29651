"""A checkpoint tensor that holds one thing of all experts, seen as one tensor for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.layers.params import release

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from core.api.weights import WeightTensor


class ExpertTensor:
    """A `WeightTensor`: an entry of another's first dimension.

    Args:
        whole: The tensor of all experts; it is released with its last expert, as they are taken in order.
    """

    def __init__(self, whole: WeightTensor, expert: int, name: str) -> None:
        self.name, self.encoding = name, whole.encoding
        self.shape = tuple(whole.shape[1:])
        self._whole, self._expert = whole, expert

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the expert's values in `dtype`."""
        if self.encoding == "plain":
            return self.raw().to(dtype)
        return self._whole.dense(dtype)[self._expert]

    def raw(self) -> Tensor:
        """Return the expert's elements as they are stored."""
        stored, count = self._whole.raw(), self._whole.shape[0]
        return (
            stored.view(count, -1, *stored.shape[-1:])[self._expert]
            if self.encoding != "plain"
            else stored[self._expert]
        )

    def release(self) -> None:
        """Say that the values were taken."""
        if self._expert == self._whole.shape[0] - 1:
            release(self._whole)


def each_expert(tensor: WeightTensor, name: str) -> Iterator[ExpertTensor]:
    """Yield the tensors of the experts; `name` has `{}` for the expert's number."""
    for expert in range(tensor.shape[0] if tensor.shape else 0):
        yield ExpertTensor(tensor, expert, name.format(expert))
