"""How a step's rows are divided into pieces of work. Host arithmetic on numpy; no torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

GATHER_TOKENS = 32768
"""Most context tokens, padding included, that one decode group gathers: bounds the copy made per layer."""

SLACK_BLOCKS = 4
"""Padding of this many blocks per row is cheaper than a further group."""

QUERY_TILE = 512
"""Queries of a prefill tile; a tile's mask and scores are `tile x context`."""


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Rows of one query token each, padded to `num_blocks` blocks.

    Attributes:
        rows: Batch rows, ascending.
        first_blocks: First block each row needs (later than 0 only under a window).
    """

    rows: np.ndarray
    first_blocks: np.ndarray
    num_blocks: int


@dataclass(frozen=True, slots=True)
class PrefillTile:
    """Consecutive queries of one row.

    Attributes:
        tokens: `(begin, end)` in the step.
        first_query: Position of the first query in the sequence.
        keys: `(begin, end)` positions that any of these queries may see.
    """

    row: int
    tokens: tuple[int, int]
    first_query: int
    keys: tuple[int, int]


def first_seen(positions: np.ndarray, window: int | None, chunk: int | None) -> np.ndarray:
    """Return the first position that a query at each of `positions` sees."""
    first = np.zeros_like(positions)
    if window is not None:
        first = np.maximum(positions - window + 1, 0)
    return first if chunk is None else np.maximum(first, positions // chunk * chunk)


def decode_groups(
    seq_lens: np.ndarray, rows: np.ndarray, window: int | None, block_size: int, chunk: int | None = None
) -> list[DecodeGroup]:
    """Group rows of similar length, so that no row is padded to much more than twice its own length."""
    lengths = seq_lens[rows].astype(np.int64)
    first = first_seen(lengths - 1, window, chunk) // block_size
    needed = -(-lengths // block_size) - first
    groups: list[DecodeGroup] = []
    order = np.argsort(-needed, kind="stable")
    begin = 0
    while begin < len(order):
        widest = int(needed[order[begin]])
        fitting = int(np.count_nonzero(needed[order[begin:]] >= widest // 2 - SLACK_BLOCKS))
        size = min(fitting, max(1, GATHER_TOKENS // (widest * block_size)))
        members = np.sort(order[begin : begin + size])
        groups.append(DecodeGroup(rows[members], first[members], widest))
        begin += size
    return groups


def prefill_tiles(
    row: int, tokens: tuple[int, int], length: int, window: int | None, chunk: int | None = None
) -> list[PrefillTile]:
    """Cut the queries of one row so that no tile looks at keys which all of its queries must not see."""
    begin, end = tokens
    context = length - (end - begin)
    tiles = []
    for first in range(begin, end, QUERY_TILE):
        last = min(first + QUERY_TILE, end)
        position = context + first - begin
        low = int(first_seen(np.array(position), window, chunk))
        tiles.append(PrefillTile(row, (first, last), position, (low, context + last - begin)))
    return tiles
