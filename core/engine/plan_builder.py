"""The plan builder: rows, tokens and blocks that one call of the scheduler has handed out so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.api.steps import BlockUpdate, NewRow, StepPlan
from core.engine.blocks import NULL_BLOCK
from core.engine.latency import Allowance
from core.engine.request import Request
from core.engine.rows import RequestTable

_NOTHING = np.zeros(0, np.int32)
_NO_UPDATE = BlockUpdate(_NOTHING, _NOTHING, np.zeros(1, np.int32), _NOTHING)


@dataclass(slots=True)
class _Growth:
    """`counts[i]` columns of `blocks (groups, n)`, in turn, go to `rows[i]` from column `starts[i]` on."""

    rows: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    blocks: np.ndarray

    def without(self, row: int) -> _Growth:
        kept = self.rows != row
        if kept.all():
            return self
        blocks = self.blocks[:, np.repeat(kept, self.counts)]
        return _Growth(self.rows[kept], self.starts[kept], self.counts[kept], blocks)


class PlanBuilder:
    """Collects rows, token counts and block-table changes, as arrays.

    Attributes:
        budget: Tokens that may still be handed out.
        prompts: Tokens of prompts that were.
        share: Tokens of prompts after which no further one begins; None: as long as the budget lasts.
        allowance: What prompts may take beside decoding rows; None: whatever the budget holds.
        drafting: Rows that run their last token are bound late.
    """

    def __init__(self, budget: int, groups: int = 1) -> None:
        self.budget = budget
        self._groups = groups
        self.prompts = 0
        self.share: int | None = None
        self.allowance: Allowance | None = None
        self.drafting = False
        self._rows: list[np.ndarray] = []
        self._counts: list[np.ndarray] = []
        self._new: list[NewRow] = []
        self._growth: list[_Growth] = []
        self._admitted: dict[int, int] = {}  # row -> tokens
        self._tables: list[Sequence[Sequence[int]]] = []  # the block tables of each of them
        self._dropped: list[tuple[np.ndarray, _Growth]] = []  # groups, and what has become the null block there

    @property
    def empty(self) -> bool:
        """Whether nothing is scheduled."""
        return not (self._admitted or any(len(rows) for rows in self._rows))

    def takes(self, count: int) -> bool:
        """Say whether a prompt that runs `count` tokens may begin in this step; the first one always may."""
        return self.share is None or not self.prompts or self.prompts + count // 2 <= self.share

    def add(self, rows: np.ndarray, counts: np.ndarray) -> None:
        """Schedule `counts[i]` tokens of `rows[i]`."""
        self._rows.append(rows)
        self._counts.append(counts)
        self.budget -= int(counts.sum())

    def admit(self, row: int, count: int, tables: Sequence[Sequence[int]]) -> None:
        """Schedule the first `count` tokens of a prompt, whose block tables, one per group, are `tables`."""
        self._admitted[row] = count
        self._tables.append(tables)
        self.budget -= count
        self.prompts += count

    def remove(self, row: int) -> None:
        """Take back whatever this builder gave to `row`, which is being preempted."""
        self._growth = [growth.without(row) for growth in self._growth]
        self._dropped = [(groups, dropped.without(row)) for groups, dropped in self._dropped]
        for i, rows in enumerate(self._rows):
            kept = rows != row
            if not kept.all():
                self.budget += int(self._counts[i][~kept].sum())
                self._rows[i], self._counts[i] = rows[kept], self._counts[i][kept]

    def new(self, request: Request, parts: dict[str, Any]) -> None:
        """Introduce a request that has just got its row, with its `NewRow.parts`."""
        ends = (*request.stop_ids, *request.held_ids)
        self._new.append(NewRow(request.row, request.prompt, request.params, ends, parts, request.generated))

    def grow(self, rows: np.ndarray, starts: np.ndarray, counts: np.ndarray, blocks: np.ndarray) -> None:
        """Record that tables grow: `counts[i]` columns of `blocks (groups, n)`, in turn, go to `rows[i]`."""
        self._growth.append(_Growth(rows, starts, counts, blocks))

    def drop(self, groups: np.ndarray, rows: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> None:
        """Record that `counts[i]` columns of `rows[i]` are the null block in the tables of `groups`."""
        nothing = np.full((len(groups), int(counts.sum())), NULL_BLOCK, np.int32)
        self._dropped.append((groups, _Growth(rows, starts, counts, nothing)))

    def plan(self, number: int, table: RequestTable) -> tuple[StepPlan, np.ndarray]:
        """Freeze the builder. The row table still holds the counters from before this step.

        Returns:
            The plan, and its rows as intp: with int32 numpy takes three times as long to find what is theirs.
        """
        self._join_admitted()
        rows = np.concatenate(self._rows) if self._rows else np.zeros(0, np.intp)
        counts = _joined(self._counts)
        starts, known = table.computed[rows], table.known[rows]
        plan = StepPlan(
            number=number,
            new_rows=self._new,
            blocks=self._block_updates(),
            rows=rows.astype(np.int32),
            starts=starts,
            counts=counts,
            samples=starts + counts >= known,
            output_counts=known - table.prompt[rows],
            drafts=np.where(starts + 1 == known, counts - 1, -1).astype(np.int32) if self.drafting else None,
        )
        return plan, rows

    def _join_admitted(self) -> None:
        if self._admitted:
            rows = np.array(list(self._admitted))
            self._rows.append(rows)
            self._counts.append(np.array(list(self._admitted.values())))
            counts = np.array([len(tables[0]) for tables in self._tables])
            blocks = [[block for tables in self._tables for block in tables[group]] for group in range(self._groups)]
            self._growth.append(_Growth(rows, np.zeros_like(rows), counts, np.array(blocks)))

    def _block_updates(self) -> tuple[BlockUpdate, ...]:
        """Return the changes of each group's tables; what has grown, all groups share but for the blocks."""
        updates = [_NO_UPDATE] * self._groups
        if self._growth:
            grown = _update(self._growth)
            updates = [BlockUpdate(grown.rows, grown.starts, grown.offsets, blocks) for blocks in grown.blocks]
        for groups, dropped in self._dropped:
            own = [_Growth(one.rows, one.starts, one.counts, one.blocks[groups]) for one in self._growth]
            joined = _update([*own, dropped])
            for group, blocks in zip(groups.tolist(), joined.blocks, strict=True):
                updates[group] = BlockUpdate(joined.rows, joined.starts, joined.offsets, blocks)
        return tuple(updates)


def _update(parts: list[_Growth]) -> BlockUpdate:
    """Return several changes as one, with `blocks` of `(groups, n)`."""
    counts = _joined([part.counts for part in parts])
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.add.accumulate(counts, out=offsets[1:])  # a third of the time of np.cumsum
    return BlockUpdate(
        rows=_joined([part.rows for part in parts]),
        starts=_joined([part.starts for part in parts]),
        offsets=offsets,
        blocks=_joined([part.blocks for part in parts]),
    )


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Return the parts as one int32 array of its own."""
    return np.concatenate(parts, axis=-1, dtype=np.int32, casting="same_kind") if parts else _NOTHING
