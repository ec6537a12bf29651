"""Figures of plugins on `/metrics`, and core's own as plugins read them. Provisional.

They are Prometheus' metric families as data: no library of its is needed to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

FigureType = Literal["counter", "gauge", "histogram", "untyped"]
"""As Prometheus has them. A counter only grows."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values a histogram has seen, by their size.

    Attributes:
        bounds: Upper ends of the buckets, ascending and finite; a last bucket without one is behind them.
        counts: Values up to each end, and then all of them: never falling, and one more than `bounds`.
        sum: Of all values.
    """

    bounds: Sequence[float]
    counts: Sequence[float]
    sum: float

    def within(self, bounds: Iterable[float]) -> Histogram:
        """Return the same values in fewer buckets: those of its own ends that are among `bounds`."""
        wanted = set(bounds)
        kept = [place for place, end in enumerate(self.bounds) if end in wanted]
        counts = [*(self.counts[place] for place in kept), self.counts[-1]]
        return Histogram([self.bounds[place] for place in kept], counts, self.sum)


@dataclass(frozen=True, slots=True)
class FigureSample:
    """One value of a figure.

    Attributes:
        value: A number; of histograms a `Histogram`.
        labels: What tells it apart from the figure's other values. Take their values from closed sets, so that clients
            cannot make the page grow.
        created: When a counter began to count, in seconds since 1970; None: nobody says.
    """

    value: float | Histogram
    labels: Mapping[str, str] = field(default_factory=dict)
    created: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One family of `/metrics`.

    Attributes:
        name: Its name, with the unit at its end (`_seconds`, `_bytes`); without the `_total` of counters, which is
            added.
        help: What it says, in one line.
        type: What it is.
        samples: Its values.
    """

    name: str
    help: str
    type: FigureType
    samples: Sequence[FigureSample]


FigureCollector = Callable[[Mapping[str, Figure]], Iterable[Figure]]
"""Gives a plugin's figures whenever `/metrics` is asked for; it is given core's own of that moment, by name.

It runs on the event loop, so that it waits for nothing, and counts need no lock."""
