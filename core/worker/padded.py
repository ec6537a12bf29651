"""Memory that captured steps read: the inputs of a step, and padding behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from core.api.attention import BatchView
from core.api.states import StateRows
from core.api.steps import StepShape

if TYPE_CHECKING:
    from torch import Tensor

    from core.worker.inputs import StepInputs


class PaddedMemory:
    """The inputs of the largest step, on the device and, of what the host knows, on the host as well.

    Smaller steps are the first rows and tokens of it. Rows without a request are padding: token 0 at position 0, one
    token long, in block 0, slot 0; where the model keeps states, fresh in the slot that is nobody's. In a step of any
    number of tokens a row they have no token, but for the last: it has all tokens of padding, and is so long.

    Args:
        rows, tokens: Of the largest step.
        groups: Cache groups; each has slots and tables of its own.
        nobodys: The slot for states of padding; None: the model keeps none.
    """

    def __init__(
        self, groups: int, rows: int, tokens: int, columns: int, device: torch.device, nobodys: int | None
    ) -> None:
        with torch.inference_mode(False):
            self.token_ids, self.positions = torch.zeros(2, tokens, dtype=torch.int64, device=device)
            self.slots = torch.zeros(groups, tokens, dtype=torch.int64, device=device)
            self._single = torch.arange(rows + 1, dtype=torch.int32, device=device)
            self._mixed = torch.zeros(rows + 1, dtype=torch.int32, device=device)
            self.lengths = torch.ones(rows, dtype=torch.int32, device=device)
            self.tables = torch.zeros(groups, rows, columns, dtype=torch.int32, device=device)
            self.held = torch.full((rows,), nobodys or 0, dtype=torch.int64, device=device)
            self.fresh = torch.ones(rows, dtype=torch.int64, device=device)
        self._nobodys = nobodys
        self._host_single = np.arange(rows + 1, dtype=np.int32)
        self._host_mixed = np.zeros(rows + 1, dtype=np.int32)
        self.host_lengths = np.ones(rows, dtype=np.int32)
        self._rows = self._tokens = 0  # that are no padding
        self._width = 0  # columns that may hold blocks
        self._last: int | None = None  # the row that has the padding of a step with prompts
        self._cut: tuple[tuple[int, int, int], list[Tensor]] = ((-1, -1, -1), [])

    def view(self, shape: StepShape, block_size: int, group: int, layers: frozenset[int] | None) -> BatchView:
        """Return the batch of a step of this shape, as the layers of a group see it."""
        rows, columns = shape.num_rows, -(-shape.max_seq_len // block_size)
        host, starts = (self._host_mixed, self._mixed) if mixed(shape) else (self._host_single, self._single)
        return BatchView(
            query_starts=host[: rows + 1],
            seq_lens=self.host_lengths[:rows],
            block_tables=self.tables[group, :rows, :columns],
            slots=self.slots[group, : shape.num_tokens],
            max_query_len=shape.max_query_len,
            max_seq_len=shape.max_seq_len,
            layers=layers,
            twins=(starts[: rows + 1], self.lengths[:rows]),
        )

    def states(self, rows: int) -> StateRows | None:
        """Return the first rows as operations with states see them, a token each; None for a model without."""
        if self._nobodys is None:
            return None
        starts = self._host_single[: rows + 1]
        return StateRows(self.held[:rows], self.fresh[:rows], starts, self._single[: rows + 1])

    def clear(self, shape: StepShape) -> None:
        """Make padding of a whole step: what runs before the next one changes nobody's states."""
        self._pad(0, 0)
        self.tables[:, :, : self._width].zero_()
        self._rows = self._tokens = self._width = 0
        if mixed(shape):
            self._divide(shape, 0, 0)

    def load(self, step: StepInputs, views: Sequence[BatchView], shape: StepShape) -> None:
        """Copy a step's inputs, and make padding of what is behind them.

        Args:
            views: The batch as the layers of each group see it.
            shape: Of the step that is to hold it.
        """
        batch, tokens = step.batch, len(step.token_ids)
        rows, width = batch.block_tables.shape
        starts, lengths = batch.on_device()
        given = [step.token_ids, step.positions, lengths, *(view.slots for view in views)]
        given += [view.block_tables for view in views]
        if step.states is not None:
            given += [step.states.slots, step.states.fresh]
        for into, one in zip(self._parts(rows, tokens, width), given, strict=True):
            into.copy_(one, non_blocking=True)
        self.host_lengths[:rows] = batch.seq_lens
        if self._width > width:
            self.tables[:, : max(rows, self._rows), width : self._width].zero_()
        self._pad(rows, tokens)
        self._rows, self._tokens, self._width = rows, tokens, width
        if mixed(shape):
            self._mixed[: rows + 1].copy_(starts, non_blocking=True)
            self._host_mixed[: rows + 1] = batch.query_starts
            self._divide(shape, rows, tokens)

    def _parts(self, rows: int, tokens: int, width: int) -> list[Tensor]:
        """Return what a step of this size fills, in the order in which `load` gives it; as it was, for the same size.

        Args:
            width: Columns of its tables.
        """
        if self._cut[0] != (rows, tokens, width):
            parts = [self.token_ids[:tokens], self.positions[:tokens], self.lengths[:rows]]
            parts += [slots[:tokens] for slots in self.slots]
            parts += [table[:rows, :width] for table in self.tables]
            if self._nobodys is not None:
                parts += [self.held[:rows], self.fresh[:rows]]
            self._cut = (rows, tokens, width), parts
        return self._cut[1]

    def _divide(self, shape: StepShape, rows: int, tokens: int) -> None:
        """Give what is behind so many rows and tokens of a step with prompts to its last row."""
        last, padding = shape.num_rows, shape.num_tokens - tokens
        self._mixed[rows + 1 : last].fill_(tokens)
        self._mixed[last].fill_(shape.num_tokens)
        self._host_mixed[rows + 1 : last] = tokens
        self._host_mixed[last] = shape.num_tokens
        if padding:
            self._last = last - 1
            self.lengths[self._last].fill_(padding)
            self.host_lengths[self._last] = padding

    def _pad(self, rows: int, tokens: int) -> None:
        """Make padding of the rows and tokens from these on that the last step used."""
        if self._last is not None and self._last >= rows:
            self.lengths[self._last].fill_(1)
            self.host_lengths[self._last] = 1
        self._last = None
        if self._tokens > tokens:
            for padded in (self.token_ids, self.positions):
                padded[tokens : self._tokens].zero_()
            self.slots[:, tokens : self._tokens].zero_()
        if self._rows > rows:
            self.tables[:, rows : self._rows].zero_()
            for padded in (self.lengths, self.fresh):
                padded[rows : self._rows].fill_(1)
            self.held[rows : self._rows].fill_(self._nobodys or 0)
            self.host_lengths[rows : self._rows] = 1


def mixed(shape: StepShape) -> bool:
    """Whether rows of a step have any number of tokens."""
    return shape.max_query_len > 1
