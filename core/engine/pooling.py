"""What a pooling request asks of the engine, and how its vector travels."""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import numpy as np

PoolingMethod = Literal["mean", "max", "cls", "last", "all"]


ARRAY_DTYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
"""What an array that travels with a prompt may hold."""


class Array(msgspec.Struct, array_like=True, frozen=True):
    """An array of any of `ARRAY_DTYPES`; `data` holds its numbers in order, little endian."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @staticmethod
    def of(array: np.ndarray) -> Array:
        """Wrap an array. Raises `ValueError` for a dtype that does not travel."""
        if array.dtype.name not in ARRAY_DTYPES:
            raise ValueError(f"has dtype {array.dtype}; allowed are {', '.join(ARRAY_DTYPES)}")
        ordered = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        return Array(array.dtype.name, array.shape, ordered.tobytes())

    def array(self) -> np.ndarray:
        """Return the array, writable. Raises `ValueError` if dtype, shape and data do not agree."""
        if self.dtype not in ARRAY_DTYPES or any(size < 0 for size in self.shape):
            raise ValueError(f"an array of {self.dtype!r:.40} and shape {self.shape} cannot be")
        dtype = np.dtype(self.dtype)
        if len(self.data) != dtype.itemsize * math.prod(self.shape):
            raise ValueError(f"an array of {self.dtype} and shape {self.shape} came with {len(self.data)} bytes")
        return np.frombuffer(self.data, dtype=dtype.newbyteorder("<")).reshape(self.shape).astype(dtype)


class Pooling(msgspec.Struct, frozen=True):
    """A pooling request.

    Attributes:
        method: As in `core.api.PoolingShape`.
        second: Position at which the second text of a pair begins; 0 if there is none.
        arrays: What the model reads besides the token ids, by name.
    """

    method: PoolingMethod = "mean"
    second: int = 0
    arrays: dict[str, Array] = {}


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
