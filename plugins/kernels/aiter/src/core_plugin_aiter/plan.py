"""A step as AITER's kernels read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from core_plugin_accelerator.latents import Queries, queries_of
from core_plugin_accelerator.paged import OverPaged, PagedPlan, entries
from torch import Tensor

MOST_QUERIES = 512
"""Queries of a prompt that one call computes: each has places of all that it sees."""

SPLITS = 16
"""Parts of a context, where every row has one query. Their number is fixed, so a row's numbers do not depend on the
others."""


@dataclass(frozen=True, slots=True)
class LatentPiece:
    """Queries of one call, each with the places of what it sees: the library's pages of latents are of one token.

    Attributes:
        tokens: Which of the step's.
        starts: `(queries + 1,)` int32, where each begins: one behind the other.
        ends: `(queries + 1,)` int32, where each one's places begin.
        places: `(places,)` int32, rows of a cache seen as `(num_blocks * block_size, ...)`.
        last: `(queries,)` int32, tokens in each one's last page.
        splits: Parts of each context.
        split_starts: `(queries + 1,)` int32, where each one's parts begin.
    """

    tokens: slice
    starts: Tensor
    ends: Tensor
    places: Tensor
    last: Tensor
    splits: int
    split_starts: Tensor


@dataclass(slots=True)
class AiterPlan(OverPaged):
    """One step.

    Attributes:
        paged: Its rows.
        pieces: Its queries, for layers with latent attention; empty if there are none.
    """

    paged: PagedPlan
    pieces: list[LatentPiece]


def latent_pieces(paged: PagedPlan, size: int) -> list[LatentPiece]:
    """Return the queries of a step over blocks of `size` tokens; nothing waits for the device."""
    most = len(paged.counts) if paged.single else MOST_QUERIES
    splits = SPLITS if paged.single else 1
    found = []
    for one in queries_of(paged, max(1, most)):
        ends = torch.zeros(len(one.lengths) + 1, dtype=torch.int32, device=one.lengths.device)
        torch.cumsum(one.lengths, 0, dtype=torch.int32, out=ends[1:])
        found.append(_piece(one.tokens, len(one.lengths), ends, places_of(one, size), splits))
    return found


def fixed_piece(paged: PagedPlan, memory: Callable[[int], Tensor]) -> LatentPiece:
    """Return the piece of a plan that captured graphs read: its places are filled for each step.

    Args:
        memory: Returns memory for so many places, which stays.
    """
    places = memory(paged.rows * paged.max_length)
    return _piece(slice(0, paged.rows), paged.rows, paged.ends, places, SPLITS)


def _piece(tokens: slice, count: int, ends: Tensor, places: Tensor, splits: int) -> LatentPiece:
    steps = torch.arange(count + 1, dtype=torch.int32, device=ends.device)
    return LatentPiece(tokens, steps, ends, places, torch.ones_like(steps[1:]), splits, steps * splits)


def places_of(queries: Queries, size: int) -> Tensor:
    """Return the places of what each query sees, one behind the other, `(total,)` int32."""
    rows, place = entries(queries.lengths, queries.total)
    blocks = queries.tables[rows, torch.div(place, size, rounding_mode="floor")].long()
    return (blocks * size + place % size).to(torch.int32)
