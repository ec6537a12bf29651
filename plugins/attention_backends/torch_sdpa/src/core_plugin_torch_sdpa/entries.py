"""Which compressed entries the rows of a step have and see: prepared once per step, read in every such layer.

An entry stands for `ratio` tokens of a row and lies in the block of these tokens, at slot `slot // ratio` of a cache
whose blocks hold `block_size / ratio` of them. A query at position p sees the first `(p + 1) // ratio` of its row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.api.attention import BatchView


@dataclass(frozen=True, slots=True)
class EntryGroup:
    """Rows whose entries are gathered together: all that have one token in the step, or one of several.

    Attributes:
        tokens: Places of their tokens in the step, row by row: a slice, or `(rows,)` int64.
        blocks: `(rows, blocks)` int64; behind a row's own there may be any.
        positions: `(rows, queries)` int64, of their tokens.
    """

    tokens: Tensor | slice
    blocks: Tensor
    positions: Tensor

    def unseen(self, ratio: int, width: int) -> Tensor:
        """Return which of the first `width` entries each query does not see, `(rows, queries, width)` bool."""
        seen = torch.div(self.positions + 1, ratio, rounding_mode="floor")
        return torch.arange(width, device=seen.device) >= seen[..., None]


class Entries:
    """The groups of a step. They are made when the first layer asks, since most models have no use for them."""

    def __init__(self, batch: BatchView, block_size: int) -> None:
        self._batch, self._block_size = batch, block_size
        self._groups: list[EntryGroup] | None = None
        self._ends: dict[int, Tensor] = {}

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return self._batch.max_seq_len

    def groups(self) -> list[EntryGroup]:
        """Return the rows of the step."""
        if self._groups is None:
            starts = self._batch.query_starts.astype(np.int64)
            counts, lengths = np.diff(starts), self._batch.seq_lens.astype(np.int64)
            single = np.flatnonzero(counts == 1)
            several = np.flatnonzero(counts > 1).tolist()
            self._groups = [self._several(int(row), starts, lengths) for row in several]
            if len(single):
                self._groups.append(self._single(single, starts, lengths))
        return self._groups

    def store(self, kv: Tensor, entries: Tensor, slots: Tensor, ratio: int) -> None:
        """Write those of `entries (tokens, ...)` that are complete to a cache `(num_blocks, entries, ...)`."""
        if ratio not in self._ends:
            positions = np.concatenate([*map(self._positions, range(len(self._batch.seq_lens)))])
            self._ends[ratio] = _tensor(np.flatnonzero((positions + 1) % ratio == 0), slots.device)
        ends = self._ends[ratio]
        if len(ends):
            kv.flatten(0, 1).index_copy_(0, slots[ends] // ratio, entries[ends])

    def _positions(self, row: int) -> np.ndarray:
        begin, end = self._batch.query_starts[row : row + 2].tolist()
        length = int(self._batch.seq_lens[row])
        return np.arange(length - (end - begin), length)

    def _several(self, row: int, starts: np.ndarray, lengths: np.ndarray) -> EntryGroup:
        table = self._batch.block_tables
        count = -(-int(lengths[row]) // self._block_size)
        positions = _tensor(self._positions(row), table.device)[None]
        return EntryGroup(slice(int(starts[row]), int(starts[row + 1])), table[row : row + 1, :count].long(), positions)

    def _single(self, rows: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> EntryGroup:
        table = self._batch.block_tables
        count = -(-int(lengths[rows].max()) // self._block_size)
        whole = len(rows) == len(lengths)
        tokens = slice(None) if whole else _tensor(starts[rows], table.device)
        blocks = table[:, :count] if whole else table[_tensor(rows, table.device), :count]
        return EntryGroup(tokens, blocks.long(), _tensor(lengths[rows] - 1, table.device)[:, None])


class FixedEntries(Entries):
    """The same for a plan of captured graphs: rows of one token, or tokens of a row as such, in memory that stays.

    Args:
        blocks: `(rows * columns,)` int64, which the plan fills.
        longest: Tokens that a row may have.
    """

    def __init__(self, blocks: Tensor, rows: int, longest: int) -> None:
        self._most = longest
        self._last = torch.zeros(rows, 1, dtype=torch.int64, device=blocks.device)
        self._group = EntryGroup(slice(None), blocks.view(rows, -1), self._last)

    @property
    def longest(self) -> int:
        """Tokens that the longest row may have."""
        return self._most

    def groups(self) -> list[EntryGroup]:
        """Return all rows."""
        return [self._group]

    def refresh(self, lengths: Tensor) -> None:
        """Take the lengths of a batch's rows, `(rows, 1)` int32 on the device."""
        self._last.copy_(lengths).sub_(1)

    def store(self, kv: Tensor, entries: Tensor, slots: Tensor, ratio: int) -> None:
        """Write entries that are complete; in place of others the first one of block 0, which is nobody's, stays."""
        flat, ends = kv.flatten(0, 1), (self._last[:, 0] + 1) % ratio == 0
        places = torch.where(ends, torch.div(slots, ratio, rounding_mode="floor"), 0)
        kept = flat.index_select(0, places)
        flat.index_copy_(0, places, torch.where(ends.view(-1, *[1] * (entries.dim() - 1)), entries, kept))


def _tensor(array: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)
