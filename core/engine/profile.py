"""The profile of a step: how long each of its phases takes, measured only while somebody asks for it.

What is timed keeps its phases as callables and has them wrapped (`time(timer)`); `untimed` takes the wrappers off, so
that a phase that nobody measures costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

CAPACITY = 1 << 16
"""Durations kept per phase; from then on the oldest are overwritten."""

PHASES: Mapping[str, str] = {
    "send": "front end: hand requests to the engine",
    "schedule": "engine: choose the step's work",
    "launch": "engine: hand the plan to the executor",
    "step": "worker: run the step, the three below included",
    "build inputs": "worker: token ids, positions, slots, block tables",
    "forward": "worker: the model up to the final hidden states",
    "sample": "worker: logits, choice of the tokens",
    "wait": "engine: wait for the oldest step's result",
    "settle": "engine: account for the result",
    "detokenize": "front end: tokens to text, stop texts",
}
"""Phases that are measured, in the order in which a step goes through them. The engine's overlap the worker's."""

INNER = frozenset({"build inputs", "forward", "sample"})
"""Parts of another phase."""


def untimed(name: str, work: F) -> F:
    """Return `work` as it is."""
    return work


class Profile:
    """Durations by phase; a `Timer`. Each phase is for one thread at a time."""

    def __init__(self) -> None:
        self._times: dict[str, np.ndarray] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, name: str, work: F) -> F:
        """Return `work`, timed under this name."""
        times = self._times.setdefault(name, np.zeros(CAPACITY, dtype=np.int64))
        counts = self._counts
        counts.setdefault(name, 0)

        def timed(*args: Any, **named: Any) -> Any:
            begin = perf_counter_ns()
            try:
                return work(*args, **named)
            finally:
                count = counts[name]
                times[count % CAPACITY] = perf_counter_ns() - begin
                counts[name] = count + 1

        return timed  # type: ignore[return-value]

    def report(self) -> dict[str, list[float]]:
        """Return phase -> `[count, total seconds, median, 99th percentile]`, of phases that were entered."""
        return {name: self._summary(name) for name, count in self._counts.items() if count}

    def _summary(self, name: str) -> list[float]:
        count = self._counts[name]
        kept = self._times[name][: min(count, CAPACITY)] * 1e-9
        median, high = np.percentile(kept, (50, 99))
        return [count, float(kept.mean()) * count, float(median), float(high)]
