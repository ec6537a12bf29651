"""A plan in the making: what one call of the scheduler has handed out so far."""

from __future__ import annotations

import numpy as np

from core.engine.request import Request
from core.engine.rows import RowTable
from core.engine.step import BlockUpdate, NewRow, StepPlan


class PlanDraft:
    """Collects rows, token counts and block-table changes.

    Attributes:
        budget: Tokens that may still be handed out.
        rows: Scheduled rows, in batch order.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.rows: list[int] = []
        self._counts: list[int] = []
        self._new: list[NewRow] = []
        self._updates: list[tuple[int, int, list[int]]] = []

    def add(self, rows: list[int], counts: list[int]) -> None:
        """Schedule `counts[i]` tokens of `rows[i]`."""
        self.rows += rows
        self._counts += counts
        self.budget -= sum(counts)

    def remove(self, row: int) -> None:
        """Take back whatever this draft gave to `row`, which is being preempted."""
        self._updates = [update for update in self._updates if update[0] != row]
        if row in self.rows:
            at = self.rows.index(row)
            self.rows.pop(at)
            self.budget += self._counts.pop(at)

    def new(self, request: Request) -> None:
        """Introduce a request that has just got its row."""
        self._new.append(NewRow(request.row, request.prompt, request.params, request.stop_ids))

    def blocks(self, row: int, start: int, blocks: list[int]) -> None:
        """Record that `row`'s block table holds `blocks` from column `start` on."""
        self._updates.append((row, start, blocks))

    def plan(self, number: int, table: RowTable) -> StepPlan:
        """Freeze the draft. The row table still holds the counters from before this step."""
        rows = np.array(self.rows, np.int32)
        counts = np.array(self._counts, np.int32)
        starts = table.computed[rows].astype(np.int32)
        return StepPlan(
            number=number,
            new_rows=self._new,
            blocks=self._block_update(),
            rows=rows,
            starts=starts,
            counts=counts,
            samples=starts + counts == table.known[rows],
            output_counts=(table.known[rows] - table.prompt[rows]).astype(np.int32),
        )

    def _block_update(self) -> BlockUpdate:
        lengths = [len(blocks) for _, _, blocks in self._updates]
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return BlockUpdate(
            rows=np.array([row for row, _, _ in self._updates], np.int32),
            starts=np.array([start for _, start, _ in self._updates], np.int32),
            offsets=offsets,
            blocks=np.array([block for _, _, blocks in self._updates for block in blocks], np.int32),
        )
