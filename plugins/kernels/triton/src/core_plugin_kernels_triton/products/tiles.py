"""Sizes of the tiles of products, from the table of the card."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import torch

from core_plugin_kernels_triton.tables import sections, sizes


@cache
def tiles(device: torch.device) -> dict[str, Mapping[str, Any]]:
    """Return the table for a device."""
    return sizes("products", sections(device))


class Tiling(NamedTuple):
    """How programs share a product.

    Attributes:
        m, n, k: Rows, outputs and inputs of a tile.
        steps: Tiles of inputs that one program sums up.
        splits: Programs that share the inputs of a tile of outputs.
        warps, stages: What Triton compiles with.
    """

    m: int
    n: int
    k: int
    steps: int
    splits: int
    warps: int
    stages: int


def tiling(
    table: Mapping[str, Mapping[str, Any]],
    rows: int,
    outputs: int,
    inputs: int,
    bits: int,
    *,
    alike: bool,
    scaled: bool = False,
) -> Tiling:
    """Return the tiles for so many rows.

    Few rows are computed in splits of the inputs, whose number follows from the sizes of the weight alone.

    Args:
        bits: Of what is multiplied: 8, 16 or 32.
        alike: Whether as many rows as there may be are computed as few are, in the same order.
        scaled: Whether numbers are multiplied in runs with scales.
    """
    few = alike or rows <= table["few"]["rows"]
    part = table["few" if few else "scaled" if scaled else "many"]
    # Of wider numbers fewer fit: a tile has as many bytes.
    k = max(table["least"], part["k"] * 16 // max(bits, 16)) if bits != 8 else part["k8"]
    count = -(-inputs // k)
    splits = 1
    if few:
        programs = -(-outputs // part["n"])
        splits = max(1, min(part["programs"] // programs, part["splits"], count // part["steps"]))
    steps = -(-count // splits)
    return Tiling(part["m"], part["n"], k, steps, -(-count // steps), part["warps"], part["stages"])
