"""What a pooling request asks of the engine, and how its vector travels."""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import numpy as np

PoolingMethod = Literal["mean", "cls", "last", "all"]


class Pooling(msgspec.Struct, frozen=True):
    """A pooling request.

    Attributes:
        method: As in `core.api.PoolingShape`.
        second: Position at which the second text of a pair begins; 0 if there is none.
    """

    method: PoolingMethod = "mean"
    second: int = 0


class Vector(msgspec.Struct, array_like=True):
    """An array of float32.

    Attributes:
        shape: `(size,)`, or `(tokens, size)` for the method `all`.
        data: Its numbers, little endian.
    """

    shape: list[int]
    data: bytes

    @staticmethod
    def of(array: np.ndarray) -> Vector:
        """Wrap an array."""
        return Vector(list(array.shape), np.ascontiguousarray(array, dtype="<f4").tobytes())

    def array(self) -> np.ndarray:
        """Return the array, writable. Raises `ValueError` if shape and data do not agree."""
        if len(self.data) != 4 * math.prod(self.shape):
            raise ValueError(f"a vector of shape {self.shape} came with {len(self.data)} bytes")
        return np.frombuffer(self.data, dtype="<f4").reshape(self.shape).astype(np.float32)
