"""The block tables of a step's rows, in batch order, one of each cache group, on the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from core.api.steps import BlockUpdate, StepPlan
from core.worker.rows import RowTable, scattered


class BatchTables:
    """Follows the batch: gathered when its rows change, else only what a step adds is written.

    A batch that goes on decoding costs nothing per block it already has, however long its texts are.
    """

    def __init__(self, rows: RowTable) -> None:
        self._rows = rows
        shape = rows.block_tables.shape
        self._host = np.zeros(shape, dtype=np.int32)
        self._tensor = torch.from_numpy(self._host)
        self._order = np.zeros(0, dtype=np.int32)
        self._place = np.full(shape[1], -1, dtype=np.int64)
        self._extent = 0  # columns from here on are 0 everywhere
        self._view: tuple[tuple[int, int], Sequence[Tensor]] = ((0, 0), ())

    def follow(self, step: StepPlan, seq_lens: np.ndarray, longest: int) -> Sequence[Tensor]:
        """Return the scheduled rows' table of each group, until the next step.

        They are `(rows, blocks of the longest)` int32, all with one stride. Entries past a row's own
        blocks are 0, whatever an earlier life left there.

        Args:
            seq_lens: `(rows,)` tokens that each row's blocks hold after this step; `longest` is the largest.
        """
        width = -(-longest // self._rows.block_size)
        if self._moved(step):
            self._gather(step, seq_lens, width)
        else:
            for group, update in enumerate(step.blocks):
                if len(update.blocks):
                    self._extend(group, update)
            self._extent = max(self._extent, width)
        return self._cut(len(step.rows), width)

    def _moved(self, step: StepPlan) -> bool:
        """Whether a row is not the one of the last step, or starts over."""
        if step.drafts is not None:
            return True  # rows may own blocks that they have not reached: no update tells when they do
        if step.new_rows or len(step.rows) != len(self._order) or not (step.rows == self._order).all():
            return True
        return any(len(update.starts) > 0 and not update.starts.all() for update in step.blocks)

    def _gather(self, step: StepPlan, seq_lens: np.ndarray, width: int) -> None:
        count = len(step.rows)
        table = self._host[:, :count, :width]
        for gathered, own in zip(table, self._rows.block_tables, strict=True):
            gathered[:] = own[step.rows, :width]
        needed = -(-seq_lens // self._rows.block_size)
        table *= np.arange(width) < needed[:, None]
        self._host[:, :count, width : self._extent] = 0
        self._extent = max(self._extent, width)
        self._order = step.rows
        self._place.fill(-1)
        self._place[step.rows] = np.arange(count)

    def _extend(self, group: int, update: BlockUpdate) -> None:
        rows, columns = scattered(update)
        places, blocks = self._place[rows], update.blocks
        if (places < 0).any():
            here = places >= 0
            places, columns, blocks = places[here], columns[here], blocks[here]
        self._host[group, places, columns] = blocks

    def _cut(self, count: int, width: int) -> Sequence[Tensor]:
        if self._view[0] != (count, width):
            self._view = ((count, width), [table[:count, :width] for table in self._tensor])
        return self._view[1]
