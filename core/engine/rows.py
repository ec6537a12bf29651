"""The row table: everything about admitted requests that changes from step to step, as arrays.

A request owns one row from its first admission to its end, through preemptions. Position counters of a row:

    0 <= computed <= known        tokens whose KV is computed or scheduled
    prompt <= settled <= known    tokens whose ids the engine has seen
    known <= limit                settled tokens plus those being sampled by steps in flight
    dead <= published <= owned    leading columns given back, columns with content that is final, columns in the table

Where steps in flight verify drafts, `computed` and `known` are upper bounds, as if every draft were right; `slack` says
by how much they may be too high at most. Blocks are allocated by the upper bound and given back by the lower one.

A column is one block of each cache group. `owned` and `published` are one number a row; `dead` differs by group, and
the entries before it are the null block.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.engine.blocks import NULL_BLOCK
from core.engine.request import Request

STOP_WIDTH = 8
"""Stop ids per row that are compared as an array; a row with more is compared on its own."""


class RequestTable:
    """State of up to `capacity` admitted requests.

    Args:
        capacity: Rows.
        max_len: Longest request in tokens, prompt and output.
        block_size: Tokens per KV block.
        groups: Cache groups, each with a block table of its own.

    Attributes:
        tokens: `(capacity, max_blocks * block_size)` int32, the ids.
        contents: `(capacity, max_blocks)`, the same: an item is the bytes of a column's tokens.
        tables: `(groups, capacity, max_blocks)` int32, the block tables.
        dead: `(groups, capacity)` int32.
    """

    def __init__(self, capacity: int, max_len: int, block_size: int, groups: int = 1) -> None:
        self.capacity, self.max_len, self.block_size, self.groups = capacity, max_len, block_size, groups
        self.max_blocks = -(-max_len // block_size)
        # np.zeros of large arrays is backed by untouched pages: memory is committed as rows fill.
        self.tokens = np.zeros((capacity, self.max_blocks * block_size), np.int32)
        self.contents = self.tokens.view(np.dtype((np.void, block_size * self.tokens.itemsize)))
        self.tables = np.zeros((groups, capacity, self.max_blocks), np.int32)
        self.handle = np.zeros(capacity, np.int64)
        self.epoch = np.zeros(capacity, np.int64)
        self.prompt = np.zeros(capacity, np.int32)
        self.computed = np.zeros(capacity, np.int32)
        self.settled = np.zeros(capacity, np.int32)
        self.known = np.zeros(capacity, np.int32)
        self.limit = np.zeros(capacity, np.int32)
        self.slack = np.zeros(capacity, np.int32)
        self.owned = np.zeros(capacity, np.int32)
        self.published = np.zeros(capacity, np.int32)
        self.dead = np.zeros((groups, capacity), np.int32)
        self.stop_ids = np.full((STOP_WIDTH, capacity), -1, np.int32)
        self._stop_width = 0  # of STOP_WIDTH, as many as any row has used so far
        self.many_stops: dict[int, frozenset[int]] = {}
        self.requests: list[Request | None] = [None] * capacity
        self._free = list(range(capacity - 1, -1, -1))

    @property
    def free(self) -> int:
        """Rows without an owner."""
        return len(self._free)

    def claim(self, request: Request) -> int:
        """Give `request` a row and fill it. Raises `IndexError` when none is free."""
        row = self._free.pop()
        length, given = request.num_prompt, request.num_given
        request.row = row
        self.requests[row] = request
        self.handle[row] = request.handle
        self.tokens[row, :length] = request.prompt
        self.tokens[row, length:given] = request.generated
        self.prompt[row] = length
        self.settled[row] = self.known[row] = given
        self.computed[row] = self.owned[row] = self.published[row] = self.slack[row] = 0
        self.dead[:, row] = 0
        self.limit[row] = request.limit
        self._set_stops(row, request.stop_ids)
        return row

    def retire(self, request: Request) -> None:
        """Take the row back; results of steps in flight no longer match its epoch."""
        row = request.row
        self.epoch[row] += 1
        self.requests[row] = None
        self.many_stops.pop(row, None)
        self.known[row] = self.limit[row] = self.slack[row] = 0
        self._free.append(row)
        request.row = -1

    def rewind(self, row: int) -> np.ndarray:
        """Forget the tokens that steps in flight sample: their results no longer match the row's epoch.

        Returns:
            The settled tokens behind the prompt, `(n,)` int32.
        """
        self.epoch[row] += 1
        self.known[row] = self.settled[row]
        self.slack[row] = 0
        return self.tokens[row, self.prompt[row] : self.settled[row]].copy()

    def blocks(self, row: int) -> list[int]:
        """Return the blocks that the row holds, column by column; those given back are not among them."""
        table = self.tables[:, row, : self.owned[row]].T
        held: list[int] = (table[table != NULL_BLOCK] if self.dead[:, row].any() else table.ravel()).tolist()
        return held

    def place_blocks(self, row: int, tables: Sequence[Sequence[int]], dead: Sequence[int]) -> None:
        """Give a row without blocks its tables, one per group, which begin with `dead[group]` null blocks."""
        owned = len(tables[0])
        self.tables[:, row, :owned] = tables
        self.owned[row] = owned
        self.dead[:, row] = dead

    def grow(self, rows: np.ndarray, counts: np.ndarray, blocks: np.ndarray) -> None:
        """Extend the tables of several rows: `counts[i]` columns of `blocks (groups, n)`, in turn, go to `rows[i]`."""
        owned = self.owned[rows]
        if blocks.shape[1] == len(rows):
            self.tables[:, rows, owned] = blocks
        else:
            self.tables[(slice(None), *spread(rows, owned, counts))] = blocks
        self.owned[rows] = owned + counts

    def bound(self, rows: np.ndarray, drafts: np.ndarray) -> None:
        """Count `drafts (n,)` of a step that was launched as if all of them were right."""
        self.known[rows] += drafts
        self.slack[rows] += drafts

    def unbind(self, rows: np.ndarray, drafts: np.ndarray, refused: np.ndarray) -> None:
        """A step has settled that verified at most `drafts (n,)`: take back the `refused (n,)` of them."""
        self.known[rows] -= refused
        # A row that was preempted meanwhile has nothing computed; it comes back once its slack is 0.
        self.computed[rows] = np.maximum(self.computed[rows] - refused, 0)
        self.slack[rows] -= drafts

    def clear_blocks(self, row: int) -> list[int]:
        """Empty the row's block tables, forget what was computed, and return the blocks it held."""
        blocks = self.blocks(row)
        self.tables[:, row, : self.owned[row]] = NULL_BLOCK
        self.owned[row] = self.computed[row] = self.published[row] = 0
        self.dead[:, row] = 0
        return blocks

    def drop_blocks(self, groups: np.ndarray, rows: np.ndarray, upto: np.ndarray) -> np.ndarray:
        """Take the leading columns up to `upto (n,)` of `rows (n,)` out of the tables of `groups`, which dropped the
        same columns so far.

        Returns:
            Their blocks, `(groups, columns)` int32, row by row.
        """
        first = self.dead[groups[0], rows]
        at = (groups[:, None], *spread(rows, first, upto - first))
        blocks: np.ndarray = self.tables[at]
        self.tables[at] = NULL_BLOCK
        self.dead[groups[:, None], rows] = upto
        return blocks

    def stopped(self, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Say for each row whether its new token is one of its stop ids, `(n,)` bool."""
        hits = np.zeros(len(rows), bool)
        for stop_ids in self.stop_ids[: self._stop_width]:
            hits |= stop_ids[rows] == tokens
        if self.many_stops:
            for i, (row, token) in enumerate(zip(rows.tolist(), tokens.tolist(), strict=True)):
                hits[i] |= token in self.many_stops.get(row, ())
        return hits

    def _set_stops(self, row: int, stop_ids: tuple[int, ...]) -> None:
        count = len(stop_ids)
        if count <= STOP_WIDTH:
            self._stop_width = max(self._stop_width, count)
            self.stop_ids[: self._stop_width, row] = (*stop_ids, *[-1] * (self._stop_width - count))
        else:
            self.stop_ids[: self._stop_width, row] = -1
            self.many_stops[row] = frozenset(stop_ids)


def spread(rows: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and the column of `counts[i]` columns of `rows[i]` from `starts[i]` on, in turn."""
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(rows, counts), np.repeat(starts, counts) + within
