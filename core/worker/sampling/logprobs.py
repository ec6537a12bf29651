"""Log-probabilities of chosen tokens and of their best alternatives."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from core.engine.step import TopLogprobs


def top_logprobs(logprobs: Tensor, chosen: Tensor, alternatives: int) -> TopLogprobs:
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
    return TopLogprobs(
        ids=_numpy(torch.cat((picked, best.indices), 1), np.int32),
        values=_numpy(torch.cat((values, best.values), 1), np.float32),
        ranks=_numpy(ranks, np.int32),
    )


def split_rows(table: TopLogprobs, alternatives: np.ndarray) -> list[TopLogprobs]:
    """Return one single-position table per row, cut to the row's own number of alternatives."""
    return [
        TopLogprobs(table.ids[i : i + 1, : count + 1], table.values[i : i + 1, : count + 1], table.ranks[i : i + 1])
        for i, count in enumerate(alternatives.tolist())
    ]


def extended(table: TopLogprobs, logprobs: Tensor, ids: list[int]) -> TopLogprobs:
    """Return a single position with further tokens behind those that it lists.

    Args:
        logprobs: `(vocab,)` float32, of that position.
    """
    values = logprobs[torch.tensor(ids, dtype=torch.int64, device=logprobs.device)]
    return TopLogprobs(
        np.concatenate((table.ids, np.array([ids], dtype=np.int32)), axis=1),
        np.concatenate((table.values, _numpy(values[None], np.float32)), axis=1),
        table.ranks,
    )


def joined(tables: list[TopLogprobs]) -> TopLogprobs:
    """Return the positions of several tables, in order."""
    return TopLogprobs(
        np.concatenate([table.ids for table in tables]),
        np.concatenate([table.values for table in tables]),
        np.concatenate([table.ranks for table in tables]),
    )


def _numpy(tensor: Tensor, dtype: type) -> np.ndarray:
    return tensor.cpu().numpy().astype(dtype)
