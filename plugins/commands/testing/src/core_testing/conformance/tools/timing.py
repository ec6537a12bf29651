"""Comparing times on a machine that does other things as well."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

_ROUNDS = 9
_TARGET = 0.02
"""Seconds that one measurement should last, so that the clock and the loop do not count."""


def speed_ratio(mine: Callable[[], object], other: Callable[[], object]) -> float:
    """Return how many times faster `mine` is: the median over rounds in which both are timed, in turn."""
    repeats = []
    for work in (mine, other):
        work()  # the first time pays for what is set up on first use
        repeats.append(max(1, round(_TARGET / _time(work, 1))))
    return statistics.median(_time(other, repeats[1]) / _time(mine, repeats[0]) for _ in range(_ROUNDS))


def _time(work: Callable[[], object], repeats: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - begin) / repeats
