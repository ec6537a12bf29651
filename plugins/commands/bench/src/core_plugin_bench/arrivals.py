"""When requests are sent: arrival processes of the load generator. Pure; numpy only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True, slots=True)
class Arrivals:
    """An arrival process.

    Attributes:
        rate: Requests per second; infinite sends all at once.
        burstiness: Shape of the gamma-distributed gaps: 1 is a Poisson process, less is burstier, more is steadier.
        ramp: Change the rate from `start` to `end` over the run; `rate` is then not used.
    """

    rate: float = math.inf
    burstiness: float = 1.0
    ramp: Literal["linear", "exponential"] | None = None
    start: float = 1.0
    end: float = 1.0

    def rate_at(self, progress: float) -> float:
        """Return the rate when `progress` of the requests, in [0, 1), were sent."""
        if self.ramp == "linear":
            return self.start + (self.end - self.start) * progress
        if self.ramp == "exponential":
            return float(self.start * (self.end / self.start) ** progress)
        return self.rate

    def times(self, count: int, rng: np.random.Generator) -> list[float]:
        """Return the moments in seconds, ascending, at which `count` requests are sent.

        Gaps are scaled so that the whole run takes as long as their expected sum: the rate asked for is the rate sent.
        """
        if math.isinf(self.rate_at(0.0)):
            return [0.0] * count
        means = np.array([1.0 / self.rate_at(index / count) for index in range(count)])
        gaps = means * rng.gamma(self.burstiness, 1.0 / self.burstiness, count)
        total = gaps.sum()
        return list(np.cumsum(gaps) * (means.sum() / total if total > 0 else 0.0))
