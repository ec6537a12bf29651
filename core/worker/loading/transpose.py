"""A checkpoint matrix that is stored as `(in, out)`, seen as `(out, in)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.api.errors import CheckpointError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from core.api.weights import WeightTensor


class Transposed:
    """A `WeightTensor` with its two dimensions exchanged.

    Raises:
        CheckpointError: CORE-M128 when it is no plain matrix: packed bytes cannot be exchanged.
    """

    encoding = "plain"

    def __init__(self, tensor: WeightTensor) -> None:
        if len(tensor.shape) != 2 or tensor.encoding != "plain":
            raise CheckpointError(
                "CORE-M128",
                f"the model's weight rules transpose '{tensor.name}', which is no plain matrix "
                f"(shape {tensor.shape}, stored as {tensor.encoding}).",
                hint="Use a checkpoint whose weights are not quantized, or correct the rule.",
            )
        self.name = tensor.name
        self.shape: tuple[int, ...] = tensor.shape[::-1]
        self._tensor = tensor

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the values in `dtype`."""
        return self._tensor.dense(dtype).t()

    def raw(self) -> Tensor:
        """Return the tensor as stored, but the other way round."""
        return self._tensor.raw().t()

    def release(self) -> None:
        """Say that the values were taken."""
        release = getattr(self._tensor, "release", None)
        if release is not None:
            release()
