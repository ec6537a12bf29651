"""The processor, in the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from core.api import LogitsContext, SamplingView


class TopNSigma:
    """Drops tokens whose logits lie more than n standard deviations below the best one.

    Logits of a model are much noise and a few that stand out; the deviation measures the noise, whatever the
    temperature is: it scales the logits and their deviation alike. What is forbidden already (-inf) counts for nothing.
    """

    is_argmax_invariant = True

    def __init__(self, ctx: LogitsContext) -> None:
        self._n = ctx.numbers["top_n_sigma"]

    def admit(self, row: int, params: SamplingView, prompt: np.ndarray) -> bool:
        """Core asks about rows that set the number only."""
        return bool(self._n[row] > 0)

    def release(self, row: int) -> None:
        """Nothing is kept of a row."""

    def apply(self, logits: Tensor, rows: np.ndarray, output_counts: np.ndarray) -> None:
        """Change `logits (n, vocab)` in place; line `i` is row `rows[i]`."""
        n = torch.from_numpy(self._n[rows]).to(logits.device, logits.dtype, non_blocking=True)[:, None]
        there = logits.isfinite()
        count = there.sum(-1, keepdim=True)
        mean = logits.where(there, 0.0).sum(-1, keepdim=True) / count
        variance = (logits - mean).square().where(there, 0.0).sum(-1, keepdim=True) / count
        low = logits.amax(-1, keepdim=True) - n * variance.sqrt()
        logits.masked_fill_(logits < low, float("-inf"))
