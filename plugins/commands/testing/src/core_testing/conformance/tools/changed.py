"""Checkpoint tensors that are changed, for checks of what becomes of other weights and of wrong ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from core.api.weights import WeightTensor


class Turned:
    """A `WeightTensor`: another with its outputs in the opposite order, one each as they are stored."""

    def __init__(self, tensor: WeightTensor, axis: int | None) -> None:
        self.name, self.shape, self.encoding = tensor.name, tensor.shape, tensor.encoding
        self._tensor, self._axis = tensor, axis

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the values in `dtype`."""
        return self._flipped(self._tensor.dense(dtype))

    def raw(self) -> Tensor:
        """Return the stored elements."""
        return self._flipped(self._tensor.raw())

    def _flipped(self, values: Tensor) -> Tensor:
        if self._axis is None or values.dim() <= self._axis:
            return values
        # Not every dtype of one byte can be rearranged.
        bare = values.view(torch.uint8) if values.dtype.itemsize == 1 else values
        return bare.flip(self._axis).view(values.dtype)


class Short:
    """A `WeightTensor` that lacks the last element of a dimension."""

    def __init__(self, tensor: WeightTensor, axis: int) -> None:
        self.name, self.encoding = tensor.name, tensor.encoding
        self.shape = (*tensor.shape[:axis], tensor.shape[axis] - 1, *tensor.shape[axis + 1 :])
        self._tensor, self._axis = tensor, axis

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the values in `dtype`."""
        return self._tensor.dense(dtype).narrow(self._axis, 0, self.shape[self._axis])

    def raw(self) -> Tensor:
        """Return the stored elements."""
        stored = self._tensor.raw()
        return stored.narrow(self._axis, 0, max(0, stored.shape[self._axis] - 1))


class Named:
    """A `WeightTensor` with another name."""

    def __init__(self, tensor: WeightTensor, name: str) -> None:
        self.name, self.shape, self.encoding = name, tensor.shape, tensor.encoding
        self.dense, self.raw = tensor.dense, tensor.raw


class Stacked:
    """A `WeightTensor` of several of equal sizes, one for each expert, in a first dimension of their own."""

    def __init__(self, tensors: Sequence[WeightTensor], name: str) -> None:
        self.name, self.encoding = name, tensors[0].encoding
        self.shape = (len(tensors), *tensors[0].shape)
        self._tensors = tensors

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the values in `dtype`."""
        return torch.stack([one.dense(dtype) for one in self._tensors])

    def raw(self) -> Tensor:
        """Return the stored elements."""
        every = [one.raw() for one in self._tensors]
        dtype = every[0].dtype
        if dtype.itemsize > 1:
            return torch.stack(every)
        return torch.stack([one.view(torch.uint8) for one in every]).view(dtype)
