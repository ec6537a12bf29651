"""Snapshots of recurrent states: which prefixes a request can start behind, where layers keep more than blocks.

A model that reads its past by recurrence goes on from the state behind a prefix, which the blocks of the prefix do not
hold. So a step that ends a row at a multiple of the interval keeps a copy of the row's state, a *snapshot*, under the
hash of the tokens before it; a prefix hit reaches as far as the last snapshot, whose state the row loads before its
first step. Prompts are cut so that steps end there.

States live in slots. The first are those of the rows, by their numbers; snapshots have the slots behind them. Workers
run plans in order, load before the forward pass and keep behind it: a slot can be given to another prefix as soon as
the plan that reads it is made.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np

from core.api.steps import StateCopies
from core.engine.rows import RequestTable


class Snapshots:
    """The slots of snapshots, by the hash of the prefix they stand behind; the least recently used gives way.

    Args:
        rows: The rows, whose slots come first.
        count: Slots for snapshots.
        interval: Tokens from one snapshot of a row to the next: whole blocks.
    """

    def __init__(self, rows: RequestTable, count: int, interval: int) -> None:
        if interval < 1 or interval % rows.block_size:
            raise ValueError(f"an interval of {interval} tokens is not of whole blocks of {rows.block_size}")
        self._rows, self._count, self._interval = rows, count, interval
        self._free = list(range(rows.capacity + count - 1, rows.capacity - 1, -1))
        self._index: OrderedDict[bytes, int] = OrderedDict()  # least recently used first
        # By row, where the tokens are not all known yet: how many columns the state stands behind, and its slot.
        self._unnamed: dict[int, tuple[int, int]] = {}
        self._loads: list[tuple[int, int]] = []

    def reach(self, hashes: Sequence[bytes], columns: int) -> int:
        """Return the most of `columns` leading columns, whose hashes these are, that a request can start behind."""
        step = self._interval // self._rows.block_size
        columns -= columns % step
        while columns and hashes[columns - 1] not in self._index:
            columns -= step
        return columns

    def cut(self, computed: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return how many of the next `counts` tokens of rows run: none beyond the next multiple of the interval."""
        cut: np.ndarray = np.minimum(counts, self._interval - computed % self._interval)
        return cut

    def load(self, row: int, digest: bytes) -> None:
        """Have `row` begin this step with the state behind the prefix with this hash, which `reach` has found."""
        self._index.move_to_end(digest)
        self._loads.append((self._index[digest], row))

    def copies(self, rows: np.ndarray, ends: np.ndarray) -> StateCopies | None:
        """Return the copies of a step that computes `rows` up to `ends (n,)`; None for none."""
        self._name()
        keeps = []
        for place in np.flatnonzero(ends % self._interval == 0).tolist():
            row, columns = int(rows[place]), int(ends[place]) // self._rows.block_size
            slot = self._place(row, columns)
            if slot is not None:
                keeps.append((row, slot))
        loads, self._loads = self._loads, []
        return StateCopies(_pairs(loads), _pairs(keeps)) if loads or keeps else None

    def leave(self, row: int) -> None:
        """`row` ends, or starts over."""
        unnamed = self._unnamed.pop(row, None)
        if unnamed is not None:
            self._free.append(unnamed[1])

    def forget(self, hashes: Iterable[bytes]) -> None:
        """Drop the snapshots behind the prefixes with these hashes."""
        for digest in hashes:
            slot = self._index.pop(digest, None)
            if slot is not None:
                self._free.append(slot)

    def forget_all(self) -> None:
        """Drop every snapshot, also those whose tokens are not known yet."""
        self.forget(list(self._index))
        for row in list(self._unnamed):
            self.leave(row)

    def check(self) -> None:
        """Verify that every slot is in one place. Raises `RuntimeError` if not."""
        slots = [*self._free, *self._index.values(), *(slot for _, slot in self._unnamed.values())]
        first = self._rows.capacity
        if sorted(slots) != list(range(first, first + self._count)):
            raise RuntimeError(f"the slots of snapshots are {sorted(slots)}, not {self._count} from {first} on")
        gone = [row for row in self._unnamed if self._rows.requests[row] is None]
        if gone:
            raise RuntimeError(f"rows {gone} have a snapshot without a name and no request")

    def _place(self, row: int, columns: int) -> int | None:
        """Return a slot for the state of `row` behind so many columns; None where none is to be kept."""
        request = self._rows.requests[row]
        if request is None or not request.reusable:
            return None
        known = len(request.hashes) >= columns
        if known and request.hashes[columns - 1] in self._index:
            self._index.move_to_end(request.hashes[columns - 1])
            return None
        self.leave(row)
        slot = self._taken()
        if slot is not None and known:
            self._index[request.hashes[columns - 1]] = slot
        elif slot is not None:
            self._unnamed[row] = columns, slot
        return slot

    def _taken(self) -> int | None:
        if self._free:
            return self._free.pop()
        return self._index.popitem(last=False)[1] if self._index else None

    def _name(self) -> None:
        """Make findable what stands behind tokens that have become known."""
        for row, (columns, slot) in list(self._unnamed.items()):
            request = self._rows.requests[row]
            if request is None or len(request.hashes) < columns:
                continue
            del self._unnamed[row]
            if request.hashes[columns - 1] in self._index:
                self._free.append(slot)
            else:
                self._index[request.hashes[columns - 1]] = slot


def _pairs(copies: list[tuple[int, int]]) -> np.ndarray:
    return np.array(copies, np.int32).reshape(-1, 2)
