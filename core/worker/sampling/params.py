"""Numbers that each row samples with, as host arrays indexed by row."""

from __future__ import annotations

from operator import attrgetter

import numpy as np

from core.api.sampling_params import SamplingParams
from core.api.sampling_table import fields_of
from core.ops.sampling import TEMPERATURE, TOP_K
from core.worker.sampling.batch import Feature

MIN_TEMPERATURE = 1e-6
"""Below this the division leaves float32; the distribution is a point long before."""

_DRAWN = fields_of("draw")
_drawn = attrgetter(*(one.name for one in _DRAWN))
_UNUSED = [one.default for one in _DRAWN][TEMPERATURE + 1 :]
"""Of a row that is drawn from all tokens: what follows the temperature, which is the first."""


class RowParams:
    """Temperature, truncation, seeds and log-probability counts of all rows.

    Attributes:
        flags: `(max_rows,)` `Feature` bits, those of the logits processors included.
        asked: Row -> ids of the tokens whose log-probabilities it wants instead of those of the most likely ones.
        numbers: `(drawn, max_rows)` float64: what each row is drawn with, as `core.ops.sampling.draw` takes it; the
            table of sampling parameters has the rows and their order.
    """

    def __init__(self, max_rows: int) -> None:
        self.flags = np.zeros(max_rows, dtype=np.uint32)
        self.numbers = np.zeros((len(_DRAWN), max_rows), dtype=np.float64)
        self.seeds = np.zeros(max_rows, dtype=np.int64)
        self.logprobs = np.zeros(max_rows, dtype=np.int32)
        self.asked: dict[int, list[int]] = {}
        self.prompt_logprobs = np.zeros(max_rows, dtype=np.int32)

    def admit(self, row: int, params: SamplingParams) -> None:
        """Give a row its numbers; every array entry of the previous owner is overwritten."""
        drawn = list(_drawn(params))
        drawn[TEMPERATURE], drawn[TOP_K] = max(drawn[TEMPERATURE], MIN_TEMPERATURE), max(drawn[TOP_K], 0)
        self.numbers[:, row] = drawn
        self.seeds[row] = params.seed or 0
        self.logprobs[row] = 0 if params.logprob_token_ids else params.logprobs or 0
        self.prompt_logprobs[row] = params.prompt_logprobs or 0
        self.asked.pop(row, None)
        if params.logprob_token_ids:
            self.asked[row] = params.logprob_token_ids
        self.flags[row] = _flags(params, truncated=drawn[TEMPERATURE + 1 :] != _UNUSED)


def _flags(params: SamplingParams, *, truncated: bool) -> int:
    bits = 0
    if not params.greedy:
        bits |= Feature.RANDOM
        bits |= Feature.TRUNCATED if truncated else 0
        bits |= Feature.SEEDED if params.seed is not None else 0
    bits |= Feature.LOGPROBS if params.logprobs is not None else 0
    bits |= Feature.PROMPT_LOGPROBS if params.prompt_logprobs is not None else 0
    return bits
