"""Memory of a recorded program: what its calls hand to each other, laid out so that places are used again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ALIGNMENT = 256
"""Bytes to a multiple of which every place begins."""


@dataclass(frozen=True, slots=True)
class Need:
    """Memory that the calls `first` to `last` use: `size` bytes."""

    size: int
    first: int
    last: int


def lay_out(needs: Iterable[Need]) -> tuple[list[int], int]:
    """Return the offset of each need, and the bytes of all: needs of the same call never overlap.

    Each goes to the lowest gap that holds it among those that are in use when it begins.
    """
    needs = list(needs)
    offsets = [0] * len(needs)
    living: list[tuple[int, int, int]] = []  # offset, end, last call
    total = 0
    for index in sorted(range(len(needs)), key=lambda index: needs[index].first):
        need = needs[index]
        living = sorted(entry for entry in living if entry[2] >= need.first)
        size, offset = -(-need.size // ALIGNMENT) * ALIGNMENT, 0
        for begin, end, _ in living:
            if begin - offset >= size:
                break
            offset = max(offset, end)
        offsets[index] = offset
        living.append((offset, offset + size, need.last))
        total = max(total, offset + size)
    return offsets, total
