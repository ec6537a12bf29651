"""From the results on disk to figures: medians over rounds, their spread, and ratios against goals."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.compare.cases import OFFLINE, VARIANTS, Goal
from benchmarks.compare.store import Store

_KV = {variant.name: variant.kv_mib for variant in VARIANTS}


@dataclass(frozen=True)
class Figure:
    """The samples of all rounds."""

    variant: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Their median."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """The range of the samples as a share of their median."""
        return (max(self.values) - min(self.values)) / self.median if self.median else 0.0

    def text(self, digits: int = 0) -> str:
        """Return `median (least-largest)`."""
        if len(self.values) == 1:
            return f"{self.median:,.{digits}f}"
        return f"{self.median:,.{digits}f} ({min(self.values):,.{digits}f}-{max(self.values):,.{digits}f})"


def figure(store: Store, variant: str, key: str) -> Figure | None:
    """Return a figure: the rate of a case, `ready` (s), `peak` or `memory` (MiB), `c8:median_ttft_ms` of the server."""
    values = tuple(_values(store, variant, key))
    return Figure(variant, values) if values else None


def _values(store: Store, variant: str, key: str) -> Iterable[float]:
    offline = [record["data"] for record in store.all(variant, "offline")]
    if key in {case.name for case in OFFLINE}:
        return [value for data in offline for value in data["tokens_per_s"][key]]
    if key == "ready":
        started = [record["data"] for record in store.all(variant, "startup")] or offline
        return [value for data in started for value in data["ready_s"]]
    if key == "peak":
        return [data["peak_mib"] for data in offline]
    if key == "memory":
        return [data["peak_mib"] - _KV[variant] for data in offline]
    load, _, name = key.partition(":")
    group = "server" if load.startswith("c") else "rates"
    return [record["data"][load][name] for record in store.all(variant, group) if load in record["data"]]


@dataclass(frozen=True)
class Verdict:
    """A goal with the figures that decide it; None where they are missing."""

    goal: Goal
    ours: Figure | None
    peer: Figure | None

    @property
    def ratio(self) -> float | None:
        """Core's figure as a multiple of the peer's."""
        return self.ours.median / self.peer.median if self.ours and self.peer and self.peer.median else None

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None if that cannot be said."""
        if self.ratio is None:
            return None
        return self.ratio <= self.goal.factor if self.goal.lower else self.ratio >= self.goal.factor


def judge(store: Store, goal: Goal) -> Verdict:
    """Compare the best of core's variants with the best of the peers."""
    return Verdict(goal, _best(store, goal.ours, goal), _best(store, goal.peers, goal))


def _best(store: Store, variants: Sequence[str], goal: Goal) -> Figure | None:
    found = [each for variant in variants if (each := figure(store, variant, goal.figure))]
    choose = min if goal.lower else max
    return choose(found, key=lambda each: each.median) if found else None
