"""The plan builder: rows, tokens and blocks that one call of the scheduler has handed out so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.engine.latency import Allowance
from core.engine.request import Request
from core.engine.rows import RowTable
from core.engine.step import BlockUpdate, NewRow, StepPlan

_NOTHING = np.zeros(0, np.int32)


@dataclass(slots=True)
class _Growth:
    """`counts[i]` of `blocks`, in turn, go to `rows[i]` from column `starts[i]` on."""

    rows: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    blocks: np.ndarray

    def without(self, row: int) -> _Growth:
        kept = self.rows != row
        if kept.all():
            return self
        blocks = self.blocks[np.repeat(kept, self.counts)]
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

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.prompts = 0
        self.share: int | None = None
        self.allowance: Allowance | None = None
        self.drafting = False
        self._rows: list[np.ndarray] = []
        self._counts: list[np.ndarray] = []
        self._new: list[NewRow] = []
        self._growth: list[_Growth] = []
        self._admitted: dict[int, int] = {}  # row -> tokens
        self._tables: list[list[int]] = []  # the blocks of each of them

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

    def admit(self, row: int, count: int, blocks: list[int]) -> None:
        """Schedule the first `count` tokens of a prompt, whose block table is `blocks`."""
        self._admitted[row] = count
        self._tables.append(blocks)
        self.budget -= count
        self.prompts += count

    def remove(self, row: int) -> None:
        """Take back whatever this builder gave to `row`, which is being preempted."""
        self._growth = [growth.without(row) for growth in self._growth]
        for i, rows in enumerate(self._rows):
            kept = rows != row
            if not kept.all():
                self.budget += int(self._counts[i][~kept].sum())
                self._rows[i], self._counts[i] = rows[kept], self._counts[i][kept]

    def new(self, request: Request, parts: dict[str, Any]) -> None:
        """Introduce a request that has just got its row, with its `NewRow.parts`."""
        ends = (*request.stop_ids, *request.held_ids)
        self._new.append(NewRow(request.row, request.prompt, request.params, ends, parts, request.generated))

    def blocks(self, row: int, start: int, blocks: Sequence[int]) -> None:
        """Record that `row`'s block table holds `blocks` from column `start` on."""
        one = (np.array([row], np.int32), np.array([start], np.int32), np.array([len(blocks)], np.int32))
        self._growth.append(_Growth(*one, np.array(blocks, np.int32)))

    def grow(self, rows: np.ndarray, starts: np.ndarray, counts: np.ndarray, blocks: np.ndarray) -> None:
        """Record the same of several rows: `counts[i]` of `blocks`, in turn, for `rows[i]`."""
        self._growth.append(_Growth(rows, starts, counts, blocks))

    def plan(self, number: int, table: RowTable) -> tuple[StepPlan, np.ndarray]:
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
            blocks=self._block_update(),
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
            counts = np.array([len(blocks) for blocks in self._tables])
            blocks = np.array([block for table in self._tables for block in table])
            self._growth.append(_Growth(rows, np.zeros_like(rows), counts, blocks))

    def _block_update(self) -> BlockUpdate:
        if not self._growth:
            return BlockUpdate(_NOTHING, _NOTHING, np.zeros(1, np.int32), _NOTHING)
        counts = _joined([growth.counts for growth in self._growth])
        offsets = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        return BlockUpdate(
            rows=_joined([growth.rows for growth in self._growth]),
            starts=_joined([growth.starts for growth in self._growth]),
            offsets=offsets,
            blocks=_joined([growth.blocks for growth in self._growth]),
        )


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Return the parts as one int32 array of its own."""
    if not parts:
        return _NOTHING
    return parts[0].astype(np.int32) if len(parts) == 1 else np.concatenate(parts).astype(np.int32, copy=False)
