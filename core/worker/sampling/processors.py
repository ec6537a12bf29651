"""Built-in logits processors: one object per kind of change, each owning its rows' parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from torch import Tensor

from core.api.sampling_params import SamplingParams
from core.worker.sampling.batch import SampleBatch
from core.worker.transfers import Transfers


class RowProcessor(Protocol):
    """Changes the logits of the rows that asked for it.

    Attributes:
        feature: The `Feature` bit of rows that use it.
    """

    feature: int

    def admit(self, row: int, params: SamplingParams, stop_ids: Sequence[int]) -> bool:
        """Forget the row's previous owner, take the new one's parameters, and say whether it uses this at all."""
        ...

    def apply(self, logits: Tensor, batch: SampleBatch) -> None:
        """Change `logits (n, vocab)` float32 in place. Only called when some row of the batch has the feature."""
        ...


def id_tensor(ids: Sequence[int], vocab_size: int, transfers: Transfers) -> Tensor:
    """Return the ids that the model has logits for; a tokenizer may know more ids than the model."""
    return transfers.upload(np.array([i for i in ids if 0 <= i < vocab_size], dtype=np.int64))
