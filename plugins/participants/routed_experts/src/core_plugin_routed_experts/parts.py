"""Messages between the halves."""

from __future__ import annotations

import msgspec
import numpy as np

from core.api.participants import Parts


class Asked(msgspec.Struct, frozen=True):
    """A request wants its experts back, from token `start` of the prompt on."""

    start: int = 0


class Orders(msgspec.Struct):
    """Orders to the worker half for a step.

    Attributes:
        rows, handles: Rows that run from this step on, and whose request each belongs to: their experts are sent.
        load: Send how often each expert was chosen so far.
    """

    rows: list[int]
    handles: list[int]
    load: bool = False


class Report(msgspec.Struct):
    """Experts of tokens that were computed, request by request.

    Attributes:
        handles, starts, counts: Whose tokens these are, the first one's position, and how many.
        ids: `(sum of counts, layers, k)` of `dtype`, in C order; the largest number stands for no expert.
        shape: Layers and k.
        dtype: `uint8` or `uint16`.
        load: `(layers, experts)` int64, how often each was chosen since the start; None if it was not asked for.
        layers: Module path of each layer's experts, with `load`.
    """

    handles: list[int]
    starts: list[int]
    counts: list[int]
    ids: bytes
    shape: tuple[int, int]
    dtype: str
    load: np.ndarray | None = None
    layers: list[str] = []


class Routed(msgspec.Struct):
    """The experts of a sequence's tokens: `(tokens, layers, k)` of `dtype`."""

    ids: bytes
    shape: tuple[int, int, int]
    dtype: str


PARTS = Parts(add=Asked, plan=Orders, result=Report, finished=Routed)
