"""Cost model of steps: seconds by the parts of a step, fitted to the steps that were measured.

A step takes a fixed time, a time for each decoding row, prompt token, pair of tokens that attend to each other, and
position that is scored. How long each of these takes is estimated by a Kalman filter on relative errors, so that costs
stay above zero: a measured step corrects those most that are uncertain and made up much of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import mul
from typing import NamedTuple

import numpy as np

from core.api.steps import StepPlan, StepResult

_GUESS = (64.0, 4.0, 0.001, 1.0, 0.001, 4.0)
"""Costs of a `StepWork`'s parts in prompt tokens, until they are measured; high for what grows with the prompt."""

_DECODING, _PROMPTS = range(3), range(3, 6)
"""Indices of the parts. A step with prompts makes the costs of the former no less certain: they are measured most of
the time without anything else, and must not take their share of what a prompt costs."""

_DRIFT = 0.01
"""Relative variance that a cost gains with every step."""

_UNKNOWN = 1.0
"""Relative variance of a cost that was not measured yet; none is less certain than that."""

_NOISE = 0.07
"""Relative deviation among steps of the same work."""

_RESOLUTION = 1e-6
"""Seconds of the shortest step: whatever a clock says, costs stay above zero."""

_ODD = 3.0
"""Standard deviations from which on a step is an outlier, unless the one before was one in the same direction."""


class StepWork(NamedTuple):
    """The parts of a step that take time.

    Attributes:
        steps: 1; the time that a step takes whatever is in it.
        decodes: Rows that run a single token, or drafts behind it.
        context: Tokens that these attend to.
        tokens: Tokens of the other rows, which are prompts.
        pairs: Tokens that these attend to, in total over `tokens`.
        scores: Prompt positions whose log-probabilities are wanted.
    """

    steps: float = 1.0
    decodes: float = 0.0
    context: float = 0.0
    tokens: float = 0.0
    pairs: float = 0.0
    scores: float = 0.0

    @staticmethod
    def of(plan: StepPlan, result: StepResult) -> StepWork:
        """Return the work of a step that has run."""
        several = plan.counts > 1
        if plan.drafts is not None:
            several &= plan.drafts < 0
        prompts = np.flatnonzero(several)
        starts, counts = plan.starts[prompts].tolist(), plan.counts[prompts].tolist()
        return StepWork(
            1.0,
            len(plan.counts) - len(counts),
            int(plan.starts.sum()) - sum(starts),
            sum(counts),
            sum(map(_pairs, starts, counts)),
            sum(len(one.ranks) for one in result.prompt_logprobs.values()),
        )

    def with_prompt(self, start: int, count: int, *, scored: bool) -> StepWork:
        """Return this and `count` tokens of a prompt from position `start` on."""
        return StepWork(
            self.steps,
            self.decodes,
            self.context,
            self.tokens + count,
            self.pairs + _pairs(start, count),
            self.scores + (count if scored else 0),
        )


def _pairs(start: int, count: int) -> float:
    """Return how many tokens `count` tokens from position `start` on attend to, themselves included."""
    return count * (start + (count + 1) / 2)


class StepCosts:
    """Seconds of steps, fitted online: the same measurements in the same order give the same estimates."""

    def __init__(self) -> None:
        size = range(len(_GUESS))
        self._costs: list[float] = []  # seconds of each part
        self._errors = [[_UNKNOWN * (i == j) for j in size] for i in size]  # covariance of their relative errors
        self._most: list[float] = []  # seconds of each part with one standard deviation of its own; as long as known
        self._odd = 0  # the direction in which the last step was an outlier
        self._sized = (0.0, 0.0)  # prompt tokens and seconds of the latest step with many of them

    @property
    def known(self) -> bool:
        """Whether any step was measured."""
        return bool(self._costs)

    def note(self, work: StepWork, seconds: float) -> None:
        """A step of this work took so long.

        An outlier is taken for as much as one may be. The second in a row is believed: the costs may be anything.
        """
        seconds = max(seconds, _RESOLUTION)
        self._most = []
        if not self._costs:
            scale = seconds / _dot(_GUESS, work)
            self._costs = [scale * guess for guess in _GUESS]
        shares = self._shares(work)
        measured = [i for i in (_PROMPTS if work.tokens else _DECODING) if shares[i]]
        self._forget(measured, _DRIFT)
        spread, noise = self._spread(shares), (_NOISE * sum(shares)) ** 2
        error = seconds - sum(shares)
        most = _ODD * math.sqrt(max(_dot(shares, spread), 0.0) + noise)
        before, self._odd = self._odd, 0 if abs(error) <= most else 1 if error > 0 else -1
        if self._odd and self._odd == before:
            self._forget(measured, _UNKNOWN)
            spread = self._spread(shares)
        elif self._odd:
            error = math.copysign(most, error)
        self._correct(error, spread, max(_dot(shares, spread), 0.0) + noise)
        if work.tokens >= self._sized[0] / 2:
            self._sized = (work.tokens, seconds)

    def seconds(self, work: StepWork) -> float:
        """Return how long a step of this work may be expected to take: the estimate, and one standard deviation.

        What products of few tokens take says little about many. So a step of more than twice the tokens of the last
        one that had many is thought to take longer in proportion at least: more than that it never takes.
        """
        shares = self._shares(work)
        fitted = sum(shares) + math.sqrt(max(_dot(shares, self._spread(shares)), 0.0))
        return max(fitted, self._in_proportion(work))

    def within(self, work: StepWork, seconds: float) -> bool:
        """Say whether `seconds(work)` is no more than `seconds`.

        A sum deviates by no more than its parts do together, which takes no covariances to tell.
        """
        if not self._most:
            deviations = [math.sqrt(max(row[i], 0.0)) for i, row in enumerate(self._errors)]
            self._most = [cost * (1 + deviation) for cost, deviation in zip(self._costs, deviations)]
        if max(_dot(self._most, work), self._in_proportion(work)) <= seconds:
            return True
        return self.seconds(work) <= seconds

    def _in_proportion(self, work: StepWork) -> float:
        """Return seconds in proportion to the last step of many tokens, where the work has more than twice as many."""
        tokens, seconds = self._sized
        return seconds * work.tokens / tokens if 0 < 2 * tokens < work.tokens else 0.0

    def _shares(self, parts: Sequence[float]) -> list[float]:
        return list(map(mul, self._costs, parts))

    def _spread(self, shares: Sequence[float]) -> list[float]:
        """Return the covariance of each cost's relative error with that of the sum of `shares`."""
        return [_dot(row, shares) for row in self._errors]

    def _correct(self, error: float, spread: Sequence[float], variance: float) -> None:
        """Move the costs towards a step that took `error` longer than expected; with which variance is known."""
        for i, one in enumerate(spread):
            gain = one / variance
            self._costs[i] *= min(max(1 + gain * error, 0.1), 10.0)
            self._errors[i] = [old - gain * other for old, other in zip(self._errors[i], spread)]

    def _forget(self, indices: Iterable[int], variance: float) -> None:
        """Make costs less certain by a relative variance; none gets less certain than it was at first."""
        for i in indices:
            self._errors[i][i] += variance
            if (now := self._errors[i][i]) > _UNKNOWN:
                scale = math.sqrt(_UNKNOWN / now)
                self._errors[i] = [scale * error for error in self._errors[i]]
                for row in self._errors:
                    row[i] *= scale


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(map(mul, left, right), 0.0)
