"""Sizes of the tiles of these kernels on a device."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import torch

from core_plugin_kernels_triton.ops.tiles import power_of_two
from core_plugin_kernels_triton.tables import sections, sizes

_LEAST = 16
"""Rows, outputs and inputs of what is multiplied at once."""


@cache
def tiles(device: torch.device) -> dict[str, Mapping[str, int]]:
    """Return the table for a device: kernel -> its sizes."""
    return sizes("experts", sections(device))


class Tile(NamedTuple):
    """Pairs, outputs and inputs of a tile, and what Triton compiles with."""

    m: int
    n: int
    k: int
    warps: int
    stages: int


def plain_tile(device: torch.device, rows: int, inputs: int) -> Tile:
    """Return the tile of products with plain weights of so many outputs and inputs."""
    table = tiles(device)["multiply"]
    return Tile(table["m"], _within(table["n"], rows), _within(table["k"], inputs), table["warps"], table["stages"])


def stored_tile(device: torch.device, rows: int, inputs: int, bits: int, *, scaled: bool = False) -> Tile:
    """Return the tile of products with weights as they are stored.

    Args:
        bits: Of what is multiplied: 8, 16 or 32.
        scaled: Whether numbers are multiplied in runs with scales.
    """
    table = tiles(device)["scaled" if scaled else "stored"]
    # Of wider numbers fewer fit. In 8 bits a tile may have to be a whole run of inputs.
    k = table["k8"] if bits == 8 else _within(max(_LEAST, table["k"] * 16 // bits), inputs)
    return Tile(table["m"], _within(table["n"], rows), k, table["warps"], table["stages"])


def _within(most: int, size: int) -> int:
    return min(most, max(_LEAST, power_of_two(size)))
