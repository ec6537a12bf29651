"""Logit bias: numbers added to the logits of chosen tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from core.api.sampling_params import SamplingParams
from core.worker.sampling.batch import Feature, SampleBatch
from core.worker.transfers import Transfers

if TYPE_CHECKING:
    from core.ops.registry import Op


class LogitBias:
    """Adds `logit_bias`.

    Args:
        add: The form of `add_bias` to use.
    """

    feature = Feature.BIAS

    def __init__(self, vocab_size: int, transfers: Transfers, add: Op) -> None:
        self._vocab_size = vocab_size
        self._transfers = transfers
        self._add = add
        self._rows: dict[int, tuple[Tensor, Tensor]] = {}
        self._joined: tuple[bytes, tuple[Tensor, Tensor, Tensor]] | None = None

    def admit(self, row: int, params: SamplingParams, stop_ids: Sequence[int]) -> bool:
        """Take the row's biases."""
        self._rows.pop(row, None)
        self._joined = None
        bias = {token: value for token, value in (params.logit_bias or {}).items() if 0 <= token < self._vocab_size}
        if not bias:
            return False
        ids, values = np.array(list(bias), dtype=np.int64), np.array(list(bias.values()), dtype=np.float32)
        self._rows[row] = (self._transfers.upload(ids), self._transfers.upload(values))
        return True

    def apply(self, logits: Tensor, batch: SampleBatch) -> None:
        """Add each row's biases."""
        places = batch.using(self.feature)
        rows = batch.rows[places]
        key = places.tobytes() + rows.tobytes()
        if self._joined is None or self._joined[0] != key:  # from step to step the same rows ask, mostly
            self._joined = key, self._join(places, rows)
        self._add(logits, *self._joined[1])

    def _join(self, places: np.ndarray, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Return `add_bias`'s places, ids and values of all rows."""
        ids, values = zip(*(self._rows[row] for row in rows.tolist()), strict=True)
        index = self._transfers.upload(np.repeat(places.astype(np.int64), [len(one) for one in ids]))
        return (index, ids[0], values[0]) if len(ids) == 1 else (index, torch.cat(ids), torch.cat(values))
