"""Checkpoint tensors that are in memory."""

from __future__ import annotations

import torch
from torch import Tensor


class PlainTensor:
    """A `WeightTensor` of values as they are; counts how often it is read."""

    encoding = "plain"

    def __init__(self, name: str, values: Tensor) -> None:
        self.name = name
        self.shape = tuple(values.shape)
        self.reads = 0
        self._values = values

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the values in `dtype`, in memory of their own."""
        self.reads += 1
        return self._values.detach().clone().to(dtype)

    def raw(self) -> Tensor:
        """Return the values."""
        self.reads += 1
        return self._values.detach().clone()
