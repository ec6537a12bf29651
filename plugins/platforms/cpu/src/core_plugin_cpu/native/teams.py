"""Counters of teams of compute threads, and how a product is cut for them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from core_plugin_cpu.native.entry import Entry
from core_plugin_cpu.native.library import library

HOLD = Entry("hold", pointers="", sizes="thread")
"""For tests: the thread keeps the first piece of its share until others have computed the rest of it; -1: none does."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of teams since the library was loaded.

    Attributes:
        rounds: Hand-outs of work; each is one wait of the thread that runs the operations.
        pieces: Pieces of work that were handed out.
        stolen: How often a thread took from another one's share, because it had finished its own.
    """

    rounds: int
    pieces: int
    stolen: int

    def __sub__(self, other: Counts) -> Counts:
        return Counts(self.rounds - other.rounds, self.pieces - other.pieces, self.stolen - other.stolen)


def counts() -> Counts:
    """Return what teams have done so far."""
    numbers = (ctypes.c_int64 * 3)()
    library().core_cpu_counts(numbers)
    return Counts(*numbers)


def gemm_pieces(product: bytes, room: int = 1 << 15) -> np.ndarray:
    """Return how a call of `gemm.GEMM` is cut, `(pieces, 4)` int64: first row, behind the last, first panel, behind it.

    Args:
        product: The packed arguments, as `GEMM.pack` returns them; what pointers point to is not read.
    """
    function = library().core_cpu_gemm_pieces
    function.restype = ctypes.c_int64
    pieces = np.zeros((room, 4), dtype=np.int64)
    held = ctypes.create_string_buffer(product, len(product))
    fields = Entry("gemm_pieces", pointers="product pieces", sizes="room")
    count = function(fields.pack(ctypes.addressof(held), pieces.ctypes.data, room))
    return pieces[:count]
