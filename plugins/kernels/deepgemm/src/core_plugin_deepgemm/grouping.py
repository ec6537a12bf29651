"""Rows by expert in segments of whole tiles, laid out on the device: the host never learns how many an expert has."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Segments(NamedTuple):
    """Where rows by expert (as `core.ops.experts` orders them) stand in a matrix whose segments are whole tiles.

    Attributes:
        order: `(pairs,)` int64, the pair of a token and an expert that each row is.
        places: `(pairs,)` int64, the row's place in the matrix; `rows` for one without an expert.
        experts: `(rows,)` int32, the expert of each place; -1 for padding.
        rows: Places of the matrix, a multiple of the tile.
    """

    order: Tensor
    places: Tensor
    experts: Tensor
    rows: int

    def spread(self, x: Tensor, padding: float) -> Tensor:
        """Return `x (pairs, ...)`, rows by expert, at their places, and padding elsewhere."""
        out = x.new_full((self.rows + 1, *x.shape[1:]), padding)
        return out.index_copy_(0, self.places, x)[: self.rows]

    def gathered(self, y: Tensor) -> Tensor:
        """Return rows by expert of `y (rows, ...)`; zeros for those without an expert."""
        found = y[self.places.clamp(max=self.rows - 1)]
        return torch.where((self.places < self.rows)[:, None], found, 0.0)


def segments(ids: Tensor, experts: int, tile: int) -> Segments:
    """Return the segments of `ids (tokens, k)`: one for each of the experts, which may be empty."""
    flat = torch.where((ids < 0) | (ids >= experts), experts, ids).flatten().long()
    order = flat.argsort(stable=True)
    mine = flat[order]
    counts = torch.zeros(experts + 1, dtype=torch.int64, device=ids.device)
    counts.index_add_(0, flat, torch.ones_like(flat))
    whole = (counts + tile - 1) // tile * tile
    before, begins = counts.cumsum(0) - counts, whole.cumsum(0) - whole
    # No more than one tile of each expert that has a row is not full.
    rows = -(-(len(flat) + min(experts, len(flat)) * (tile - 1)) // tile) * tile
    place = begins[mine] + torch.arange(len(flat), device=ids.device) - before[mine]
    place = torch.where(mine == experts, rows, place)
    owner = torch.full((rows + 1,), -1, dtype=torch.int32, device=ids.device)
    owner.index_copy_(0, place, mine.int())
    return Segments(order, place, owner[:rows], rows)
