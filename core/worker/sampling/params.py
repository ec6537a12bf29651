"""Numbers that each row samples with, as host arrays indexed by row."""

from __future__ import annotations

import numpy as np

from core.engine.sampling import SamplingParams
from core.worker.sampling.batch import Feature

MIN_TEMPERATURE = 1e-6
"""Below this the division leaves float32; the distribution is a point long before."""


class RowParams:
    """Temperature, truncation, seeds and log-probability counts of all rows.

    Attributes:
        flags: `(max_rows,)` `Feature` bits, those of the logits processors included.
        asked: Row -> ids of the tokens whose log-probabilities it wants instead of those of the most likely ones.
        numbers: `(4, max_rows)` float64: temperature, top-k, top-p and min-p, as `core.ops.sampling.draw` takes them.
    """

    def __init__(self, max_rows: int) -> None:
        self.flags = np.zeros(max_rows, dtype=np.uint32)
        self.numbers = np.zeros((4, max_rows), dtype=np.float64)
        self.seeds = np.zeros(max_rows, dtype=np.int64)
        self.logprobs = np.zeros(max_rows, dtype=np.int32)
        self.asked: dict[int, list[int]] = {}
        self.prompt_logprobs = np.zeros(max_rows, dtype=np.int32)

    def admit(self, row: int, params: SamplingParams) -> None:
        """Give a row its numbers; every array entry of the previous owner is overwritten."""
        temperature = max(params.temperature, MIN_TEMPERATURE)
        self.numbers[:, row] = (temperature, max(params.top_k, 0), params.top_p, params.min_p)
        self.seeds[row] = params.seed or 0
        self.logprobs[row] = 0 if params.logprob_token_ids else params.logprobs or 0
        self.prompt_logprobs[row] = params.prompt_logprobs or 0
        self.asked.pop(row, None)
        if params.logprob_token_ids:
            self.asked[row] = params.logprob_token_ids
        self.flags[row] = _flags(params)


def _flags(params: SamplingParams) -> int:
    truncated = params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0
    bits = 0
    if not params.greedy:
        bits |= Feature.RANDOM
        bits |= Feature.TRUNCATED if truncated else 0
        bits |= Feature.SEEDED if params.seed is not None else 0
    bits |= Feature.LOGPROBS if params.logprobs is not None else 0
    bits |= Feature.PROMPT_LOGPROBS if params.prompt_logprobs is not None else 0
    return bits
