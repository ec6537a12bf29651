"""Sizes of tiles of the attention kernels, from the table of the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from core_plugin_kernels_triton.tables import sections, sizes


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows `m` (queries times heads that share keys), keys `n`, and what Triton compiles with."""

    m: int
    n: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class Tiles:
    """Sizes of tiles of one layer's kernels.

    Attributes:
        prompt, few: Of rows with many tokens, and with few (whose `m` grows with the heads).
        stored: Heads of tokens that one program stores.
        merged: Heads whose splits one program puts together.
        split, splits: Fewest keys of a split of a row's context, and most splits.
        joint: Most rows whose shared splits are computed together.
    """

    prompt: Tile
    few: Tile
    stored: int
    merged: int
    split: int
    splits: int
    joint: int


@cache
def tiles(device: torch.device) -> dict[str, Any]:
    """Return the table for a device: sizes, and kernel and bytes of a head (`prompt_256`) -> its tile."""
    return sizes("attention", sections(device))


def tiles_for(device: torch.device, row_bytes: int) -> Tiles:
    """Return the tiles for heads of so many bytes in the compute dtype, padded to a power of two."""
    return tiles_of(tiles(device), row_bytes)


def tiles_of(table: Mapping[str, Any], row_bytes: int) -> Tiles:
    """Return the tiles of a table for heads of so many bytes."""
    few = table[entry(table, "few", row_bytes)]
    return Tiles(
        prompt=_tile(table[entry(table, "prompt", row_bytes)]),
        few=_tile(few),
        stored=table["stored"],
        merged=table["merged"],
        split=few["split"],
        splits=table["splits"],
        joint=table["joint"],
    )


def entry(table: Mapping[str, Any], kernel: str, row_bytes: int) -> str:
    """Return the name of a kernel's entry for heads of so many bytes: the least that is enough, else the greatest."""
    limits = sorted(int(name.rpartition("_")[2]) for name in table if name.startswith(f"{kernel}_"))
    return f"{kernel}_{next((one for one in limits if row_bytes <= one), limits[-1])}"


def _tile(sizes: Mapping[str, int]) -> Tile:
    return Tile(sizes.get("m", 16), sizes["n"], sizes["warps"], sizes["stages"])
