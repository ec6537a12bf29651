"""The rows that sample in one step, as every stage of the sampler sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor


class Feature:
    """Bits of what a row asks for. A step whose rows lack a bit never enters the code behind it."""

    RANDOM = 1 << 0
    TRUNCATED = 1 << 1
    SEEDED = 1 << 2
    LOGPROBS = 1 << 3
    PROMPT_LOGPROBS = 1 << 4
    ALLOWED = 1 << 5
    BAD_WORDS = 1 << 6
    MIN_TOKENS = 1 << 7
    BIAS = 1 << 8
    PENALTIES = 1 << 9
    CONSTRAINED = 1 << 10
    PLUGGED = 1 << 11
    PLUGGED_DRAW = 1 << 12

    LOGITS = ALLOWED | BAD_WORDS | MIN_TOKENS | BIAS | PENALTIES | CONSTRAINED | PLUGGED
    WORKED_ON = LOGITS | LOGPROBS | PLUGGED_DRAW


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Entry `i` of every array is the i-th position that is sampled at: one of each row, or several that follow each
    other where drafts are verified.

    Attributes:
        rows: `(n,)` permanent rows.
        flags: `(n,)` `Feature` bits.
        output_counts: `(n,)` output tokens before this one.
        known: `(n,)` prompt and output tokens before this one, in the pool.
        pool: The token pool, `(max_rows, tokens)` int32.
        allowed: Row -> bits of the tokens that it may take, for rows with the feature CONSTRAINED.
        ahead: `(n,)` how many of the tokens before this one are drafts; None: none are.
    """

    rows: np.ndarray
    flags: np.ndarray
    output_counts: np.ndarray
    known: np.ndarray
    pool: Tensor
    allowed: Mapping[int, np.ndarray] = field(default_factory=dict)
    ahead: np.ndarray | None = None

    @property
    def features(self) -> int:
        """Bits that at least one row has."""
        return int(np.bitwise_or.reduce(self.flags)) if len(self.flags) else 0

    def using(self, feature: int) -> np.ndarray:
        """Return the indices of the rows that have any of these bits."""
        return np.flatnonzero(self.flags & feature)

    def take(self, part: slice | np.ndarray) -> SampleBatch:
        """Return some of the rows, in the order of `part`."""
        arrays = (self.rows[part], self.flags[part], self.output_counts[part], self.known[part])
        return SampleBatch(*arrays, self.pool, self.allowed, None if self.ahead is None else self.ahead[part])
