"""Repetition, frequency and presence penalties over token counts that exist only for the rows that use them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from core.api.sampling_params import SamplingParams
from core.api.sampling_table import fields_of
from core.worker.sampling.batch import Feature, SampleBatch
from core.worker.transfers import Transfers

if TYPE_CHECKING:
    from core.ops.registry import Op

_strengths = attrgetter(*(one.name for one in fields_of("penalize")))
_UNUSED = tuple(one.default for one in fields_of("penalize"))

MOST_COUNTED = 65
"""Tokens that are added to a row's counts one by one; a row that is further behind is counted anew."""


class Penalties:
    """Applies `repetition_penalty`, `frequency_penalty` and `presence_penalty`.

    Rows with a penalty get a slot in `counts (slots, vocab)` and `prompt (slots, vocab)`; both grow on demand. Counts
    follow the token pool: what a step gained is added, and a row that moved otherwise is counted anew. Drafts are added
    to a copy, as they may be wrong.

    Args:
        penalize: The form of that operation to use.
    """

    feature = Feature.PENALTIES

    def __init__(self, max_rows: int, vocab_size: int, transfers: Transfers, penalize: Op) -> None:
        self._vocab_size = vocab_size
        self._transfers = transfers
        self._penalize = penalize
        self._slots = np.full(max_rows, -1, dtype=np.int64)
        self._counted = np.full(max_rows, -1, dtype=np.int64)
        self._strengths = np.zeros((len(_UNUSED), max_rows), dtype=np.float32)
        self._free: list[int] = []
        self._counts = torch.zeros(0, vocab_size, dtype=torch.int32, device=transfers.device)
        self._prompt = torch.zeros(0, vocab_size, dtype=torch.bool, device=transfers.device)
        self._one = torch.ones((), dtype=torch.int32, device=transfers.device)

    def admit(self, row: int, params: SamplingParams, stop_ids: Sequence[int]) -> bool:
        """Take the row's strengths; its tokens are counted when it first samples."""
        if self._slots[row] >= 0:
            self._free.append(int(self._slots[row]))
            self._slots[row] = -1
        strengths = _strengths(params)
        if strengths == _UNUSED:
            return False
        self._strengths[:, row] = strengths
        self._counted[row] = -1
        self._slots[row] = self._take_slot()
        return True

    def apply(self, logits: Tensor, batch: SampleBatch) -> None:
        """Penalise what the rows have said so far."""
        chosen = batch.using(self.feature)
        rows = batch.rows[chosen]
        self._count(batch, chosen)
        slots = self._transfers.upload(self._slots[rows])
        counts = self._counts[slots]
        if batch.ahead is not None:
            self._count_drafts(batch, chosen, batch.ahead[chosen], counts)
        index, strengths = self._transfers.upload(chosen), self._transfers.upload(self._strengths[:, rows])
        self._penalize(logits, index, counts, self._prompt[slots], strengths)

    def _take_slot(self) -> int:
        if not self._free:
            used = len(self._counts)
            more = max(used, 4)
            self._free = list(range(used, used + more))
            self._counts = torch.cat((self._counts, self._counts.new_zeros(more, self._vocab_size)))
            self._prompt = torch.cat((self._prompt, self._prompt.new_zeros(more, self._vocab_size)))
        return self._free.pop()

    def _count(self, batch: SampleBatch, chosen: np.ndarray) -> None:
        """Count what the rows have said, drafts left out."""
        rows, outputs, known = batch.rows[chosen], batch.output_counts[chosen], batch.known[chosen]
        if batch.ahead is not None:
            rows, first = np.unique(rows, return_index=True)
            outputs, known = (outputs - batch.ahead[chosen])[first], (known - batch.ahead[chosen])[first]
        behind = outputs - self._counted[rows]
        behind[self._counted[rows] < 0] = -1
        self._count_last(batch.pool, rows, known, np.where(behind <= MOST_COUNTED, behind, 0))
        for i in np.flatnonzero((behind < 0) | (behind > MOST_COUNTED)).tolist():
            self._recount(batch.pool, int(rows[i]), int(known[i]), int(outputs[i]))
        self._counted[rows] = outputs

    def _count_last(self, pool: Tensor, rows: np.ndarray, known: np.ndarray, counts: np.ndarray) -> None:
        """Add the last `counts (n,)` of each row's `known (n,)` tokens."""
        of, tokens = self._last(pool, rows, known, np.maximum(counts, 0))
        if len(of):
            slots = self._transfers.upload(self._slots[rows[of]])
            self._counts.index_put_((slots, tokens), self._one, accumulate=True)

    def _count_drafts(self, batch: SampleBatch, chosen: np.ndarray, ahead: np.ndarray, counts: Tensor) -> None:
        """Add the drafts before each position to its own `counts (m, vocab)`."""
        of, tokens = self._last(batch.pool, batch.rows[chosen], batch.known[chosen], ahead)
        if len(of):
            counts.index_put_((self._transfers.upload(of), tokens), self._one, accumulate=True)

    def _last(self, pool: Tensor, rows: np.ndarray, known: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, Tensor]:
        """Return the last `counts (n,)` tokens of all rows, `(m,)` int64, and the index of the row of each."""
        of = np.repeat(np.arange(len(rows)), counts)
        back = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
        places = (self._transfers.upload(rows[of]), self._transfers.upload(known[of] - back))
        return of, pool[places].long()

    def _recount(self, pool: Tensor, row: int, known: int, outputs: int) -> None:
        slot = int(self._slots[row])
        prompt, output = pool[row, : known - outputs].long(), pool[row, known - outputs : known].long()
        self._prompt[slot] = False
        self._prompt[slot, prompt] = True
        counts = self._counts[slot]  # filled, not counted into a new tensor, whose size the host would wait for
        counts.zero_()
        counts.index_add_(0, output, self._one.expand(len(output)))
