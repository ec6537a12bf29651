"""Sizes of tiles of the attention kernels, from the table of the card."""

from __future__ import annotations

from dataclasses import dataclass
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
    """What one layer's kernels work with.

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


def tiles_for(device: torch.device, row_bytes: int) -> Tiles:
    """Return the tiles for heads of so many bytes in the compute dtype, padded to a power of two."""
    table = sizes("attention", sections(device))
    return Tiles(
        prompt=_fitting(table["prompt"], row_bytes),
        few=_fitting(table["few"], row_bytes),
        stored=table["stored"],
        merged=table["merged"],
        split=table["split"],
        splits=table["splits"],
        joint=table["joint"],
    )


def _fitting(entries: list[dict[str, Any]], row_bytes: int) -> Tile:
    """Return the first entry for rows of so many bytes; the last is for all larger ones."""
    entry = next((one for one in entries if row_bytes <= one["bytes"]), entries[-1])
    return Tile(entry.get("m", 16), entry["n"], entry["warps"], entry["stages"])
