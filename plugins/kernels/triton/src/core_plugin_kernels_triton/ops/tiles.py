"""Sizes of the tiles of these kernels on a device."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import torch

from core_plugin_kernels_triton.tables import sections, sizes

MOST_WARPS = 16


@cache
def tiles(device: torch.device) -> dict[str, Mapping[str, int]]:
    """Return the table for a device: kernel -> its sizes."""
    return sizes("ops", sections(device))


class Tiling(NamedTuple):
    """How programs share rows of one width.

    Attributes:
        rows, block: A tile: so many rows, and so many elements of each, both powers of two.
        blocks: Tiles beside each other.
        warps: Of a program.
    """

    rows: int
    block: int
    blocks: int
    warps: int

    def programs(self, rows: int) -> int:
        """Return the programs for so many rows."""
        return -(-rows // self.rows) * self.blocks


def tiling(width: int, kernel: Mapping[str, int], most: int | None = None) -> Tiling:
    """Return the tiles for rows of a width, by a kernel's `tile` and `lane`.

    Args:
        most: How many rows there are, where a row's result does not depend on the tile. None: the tile is the same for
            any number, so that sums of floats have the same order in every batch.
    """
    block = min(kernel["tile"], power_of_two(width))
    rows = kernel["tile"] // block
    rows = rows if most is None else min(rows, power_of_two(most))
    return Tiling(rows, block, -(-width // block), warps(rows * block, kernel["lane"]))


def warps(elements: int, lane: int) -> int:
    """Return how many warps hold so many elements, at most `lane` in each of their lanes, as a power of two."""
    return min(MOST_WARPS, power_of_two(-(-elements // (32 * lane))))


def power_of_two(size: int) -> int:
    """Return the least power of two that is no less."""
    return 1 << max(0, size - 1).bit_length()
