"""The task `pool`: a request's hidden states become a vector. What it asks for, and how its vector travels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
import numpy as np

from core.api.shapes import PoolingShape
from core.api.tasks import StepLimits, Task, TaskSetup
from core.api.wire import restored

if TYPE_CHECKING:
    from core.api.steps import StepResult
    from core.api.tasks import SettledStep, TaskRequest, TaskSettler

L = TypeVar("L", bound=StepLimits)

NAME = "pool"

PoolingMethod = Literal["mean", "max", "cls", "last", "all"]


ARRAY_DTYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
"""Dtypes of arrays that travel with a prompt."""


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
    """A pooling request: its part of `Add` and `NewRow`.

    Attributes:
        method: As in `core.api.PoolingShape`.
        second: Position at which the second text of a pair begins; 0 if there is none.
        arrays: What the model reads besides the token ids, by name.
    """

    method: PoolingMethod = "mean"
    second: int = 0
    arrays: dict[str, Array] = {}


@dataclass(slots=True)
class Pooled:
    """The part of a step's result.

    Attributes:
        vectors: Index into the plan's rows -> float32 array, for the prompts that ended in this step.
    """

    vectors: dict[int, np.ndarray]


class Vector(msgspec.Struct, array_like=True):
    """An array of float32: the part of a request's end.

    Attributes:
        shape: `(size,)`, or `(tokens, size)` for the method `all`.
        data: Its numbers, little endian.

    Raises:
        ValueError: Shape and data do not agree.
    """

    shape: list[int]
    data: bytes

    def __post_init__(self) -> None:
        if len(self.data) != 4 * math.prod(self.shape) or min(self.shape, default=0) < 0:
            raise ValueError(f"a vector of shape {self.shape} came with {len(self.data)} bytes")

    @staticmethod
    def of(array: np.ndarray) -> Vector:
        """Wrap an array."""
        return Vector(list(array.shape), np.ascontiguousarray(array, dtype="<f4").tobytes())

    def array(self) -> np.ndarray:
        """Return the array, writable."""
        return np.frombuffer(self.data, dtype="<f4").reshape(self.shape).astype(np.float32)


class Pool(Task):
    """Gives one vector for each prompt, or one for each of its tokens. A prompt runs in one step."""

    name = NAME
    part = Pooling
    whole_prompts = True
    step_tokens = 2048  # nobody waits for the next token, so what counts is throughput

    def __init__(self, setup: TaskSetup) -> None:
        # What a token's keys are depends on the tokens before it alone, or on those behind it as well.
        self.shares_prefixes = not PoolingShape.model_validate(setup.data).bidirectional

    def limits(self, limits: L) -> L:
        """Let the longest prompt fit into a step."""
        budget = max(limits.max_num_batched_tokens, limits.max_model_len)
        return replace(limits, max_num_batched_tokens=budget, soft_budget=False)

    def accept(self, request: TaskRequest, max_model_len: int) -> int:
        """Return the length of the prompt and its vector."""
        asked = request.parts.get(NAME)
        if asked is None:
            raise ValueError(f"the request does not say how it is pooled: it has no part '{NAME}'")
        if asked.method != "last":
            request.reusable = False  # the hidden states of every position are read
        return super().accept(request, max_model_len)

    def settle(
        self, settler: TaskSettler, step: SettledStep, alive: np.ndarray, result: StepResult, outputs: Any
    ) -> None:
        """End each request with the step that brings its vector."""
        pooled: Pooled = restored(result.parts[NAME], Pooled, NAME)
        for index, vector in pooled.vectors.items():
            if alive[index]:
                settler.end(int(step.plan.rows[index]), outputs, Vector.of(vector))
