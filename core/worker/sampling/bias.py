"""Logit bias: numbers added to the logits of chosen tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from core.engine.sampling import SamplingParams
from core.worker.sampling.batch import Feature, SampleBatch
from core.worker.transfers import Transfers


class LogitBias:
    """Adds `logit_bias`."""

    feature = Feature.BIAS

    def __init__(self, vocab_size: int, transfers: Transfers) -> None:
        self._vocab_size = vocab_size
        self._transfers = transfers
        self._rows: dict[int, tuple[Tensor, Tensor]] = {}

    def admit(self, row: int, params: SamplingParams, stop_ids: Sequence[int]) -> bool:
        """Take the row's biases."""
        self._rows.pop(row, None)
        bias = {token: value for token, value in (params.logit_bias or {}).items() if 0 <= token < self._vocab_size}
        if not bias:
            return False
        ids, values = np.array(list(bias), dtype=np.int64), np.array(list(bias.values()), dtype=np.float32)
        self._rows[row] = (self._transfers.upload(ids), self._transfers.upload(values))
        return True

    def apply(self, logits: Tensor, batch: SampleBatch) -> None:
        """Add each row's biases."""
        for i in batch.using(self.feature).tolist():
            ids, values = self._rows[int(batch.rows[i])]
            logits[i].index_add_(0, ids, values)
