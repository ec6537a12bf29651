"""Log-probabilities of chosen tokens and of their best alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.api.steps import TopLogprobs


@dataclass(frozen=True, slots=True)
class LogprobTensors:
    """`TopLogprobs` on the device; ids and ranks are int64."""

    ids: Tensor
    values: Tensor
    ranks: Tensor

    def tensors(self) -> list[Tensor]:
        """Return what is to be fetched."""
        return [self.ids, self.values, self.ranks]


def fetched(arrays: Sequence[np.ndarray]) -> TopLogprobs:
    """Return what was fetched of `LogprobTensors.tensors`."""
    ids, values, ranks = arrays
    return TopLogprobs(ids.astype(np.int32), values.astype(np.float32), ranks.astype(np.int32))


def top_logprobs(logprobs: Tensor, chosen: Tensor, alternatives: int) -> LogprobTensors:
    """Return the chosen token first, then the best ones.

    Args:
        logprobs: `(m, vocab)` float32, normalised.
        chosen: `(m,)` int64 token ids.
        alternatives: How many of the best tokens to list, the chosen one among them or not.
    """
    picked = chosen[:, None]
    values = logprobs.gather(1, picked)
    ranks = (logprobs > values).sum(1) + 1
    best = logprobs.topk(min(alternatives, logprobs.shape[1]), -1)
    return LogprobTensors(
        ids=torch.cat((picked, best.indices), 1), values=torch.cat((values, best.values), 1), ranks=ranks
    )


def split_rows(table: TopLogprobs, alternatives: np.ndarray) -> list[TopLogprobs]:
    """Return one single-position table per row, cut to the row's own number of alternatives."""
    return [
        TopLogprobs(table.ids[i : i + 1, : count + 1], table.values[i : i + 1, : count + 1], table.ranks[i : i + 1])
        for i, count in enumerate(alternatives.tolist())
    ]


def extended(table: TopLogprobs, ids: Sequence[int], values: np.ndarray) -> TopLogprobs:
    """Return a single position with further tokens behind those that it lists.

    Args:
        values: `(len(ids),)` float32, their log-probabilities at that position.
    """
    return TopLogprobs(
        np.concatenate((table.ids, np.array([ids], dtype=np.int32)), axis=1),
        np.concatenate((table.values, values[None].astype(np.float32)), axis=1),
        table.ranks,
    )


def joined(tables: Sequence[LogprobTensors]) -> LogprobTensors:
    """Return the positions of several tables, in order."""
    if len(tables) == 1:
        return tables[0]
    return LogprobTensors(
        torch.cat([table.ids for table in tables]),
        torch.cat([table.values for table in tables]),
        torch.cat([table.ranks for table in tables]),
    )
