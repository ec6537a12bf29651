"""Memory of a recorded program: what its calls hand to each other, laid out so that places are used again."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

ALIGNMENT = 256
"""Bytes to a multiple of which every place begins."""


@dataclass(frozen=True, slots=True)
class Need:
    """Memory that the calls `first` to `last` use: `size` bytes."""

    size: int
    first: int
    last: int


def reserve(size: int) -> Tensor:
    """Return `size` bytes, zeros, of which only the pages that are used take memory; they begin at a page.

    The allocator would hand out memory that was freed before, whose pages are there already, and write into each piece.
    """
    pages = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=torch.uint8)[:size]


def lay_out(needs: Iterable[Need]) -> tuple[list[int], int]:
    """Return the offset of each need, and the bytes of all: needs of the same call never overlap.

    The largest first, each goes to the lowest gap among those that live at the same time and have a place already.
    """
    needs = list(needs)
    offsets = [0] * len(needs)
    taken: list[list[tuple[int, int]]] = [[] for _ in range(max((need.last for need in needs), default=-1) + 1)]
    total = 0
    for index in sorted(range(len(needs)), key=lambda index: (-needs[index].size, needs[index].first)):
        need = needs[index]
        calls = range(need.first, need.last + 1)
        size = -(-need.size // ALIGNMENT) * ALIGNMENT
        offsets[index] = offset = _gap(sorted({place for call in calls for place in taken[call]}), size)
        for call in calls:
            taken[call].append((offset, offset + size))
        total = max(total, offset + size)
    return offsets, total


def _gap(places: Iterable[tuple[int, int]], size: int) -> int:
    """Return the lowest offset with `size` bytes between `places`, which are sorted."""
    offset = 0
    for begin, end in places:
        if begin - offset >= size:
            break
        offset = max(offset, end)
    return offset
