"""From the results on disk to figures: medians over rounds, their spread, and ratios against goals."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.compare.cases import CASES, DEMO_VARIANTS, Goal
from benchmarks.compare.store import Store

_KV = {variant.name: variant.kv_mib for variant in DEMO_VARIANTS}
_GROUPS = {case.name: group for group, cases in CASES.items() for case in cases}
"""Case -> the group that it belongs to."""


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
    """Return a figure; None if it was not measured.

    `key` is a case, for its rate, or `c8:median_ttft_ms` and the like of the server; `ready` or `started` (s: in a
    script where no server was started, or only of servers); `peak`, or `memory` without the KV cache (MiB). Of a shape:
    `share:CASE`, of the bytes (decode) or products (prompts) that the machine gave in that run; `stream` (GB/s) and
    `products` (GFLOP/s), what it gave; `weights`, `held` (KV) and `over` (MiB), what both leave of the peak.
    """
    values = tuple(_values(store, variant, key))
    return Figure(variant, values) if values else None


def _values(store: Store, variant: str, key: str) -> Iterable[float]:
    offline = [record["data"] for record in store.all(variant, "offline")]
    if key in _GROUPS:
        return [value for data in _datas(store, variant, key) for value in data["tokens_per_s"].get(key, ())]
    if key.startswith("share:"):
        case = key.removeprefix("share:")
        return [share for data in _datas(store, variant, case) for share in _shares(data, case)]
    if key in _ABOUT:
        return [_ABOUT[key](data) for data in offline if "work" in data]
    if key in ("ready", "started"):
        started = [record["data"] for record in store.all(variant, "startup")]
        return [value for data in started or (offline if key == "ready" else ()) for value in data["ready_s"]]
    if key == "peak":
        return [data["peak_mib"] for data in offline]
    if key == "memory":
        return [data["peak_mib"] - _KV[variant] for data in offline]
    load, _, name = key.partition(":")
    group = "server" if load.startswith("c") else "rates"
    return [record["data"][load][name] for record in store.all(variant, group) if load in record["data"]]


_ABOUT: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "stream": lambda data: data["machine"]["stream_gb_s"],
    "products": lambda data: data["machine"]["products_gflop_s"],
    "weights": lambda data: data["work"]["weights_mib"],
    "held": lambda data: data["work"]["kv_mib"],
    "over": lambda data: data["peak_mib"] - data["work"]["weights_mib"] - data["work"]["kv_mib"],
}


def _datas(store: Store, variant: str, case: str) -> Iterator[Mapping[str, Any]]:
    return (record["data"] for record in store.all(variant, _GROUPS[case]))


def _shares(data: Mapping[str, Any], case: str) -> list[float]:
    """Return what a case's rates made of the machine, as it was in that run."""
    asked = data.get("work", {}).get("tokens", {}).get(case, {})
    rates = data["tokens_per_s"].get(case, ())
    if "bytes" in asked:
        return [rate * asked["bytes"] * 1e-9 / data["machine"]["stream_gb_s"] for rate in rates]
    if "operations" in asked:
        return [rate * asked["operations"] * 1e-9 / data["machine"]["products_gflop_s"] for rate in rates]
    return []


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
