"""Figures on their way to the page: collectors joined, labels added, families shown by another name."""

from __future__ import annotations

import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

MODEL = "model_name"
_NOTHING: Mapping[str, str] = types.MappingProxyType({})


class Collects(Protocol):
    """A collector, or a registry of some."""

    def collect(self) -> Iterable[Metric]: ...


class Figures(Collector):
    """What several collectors tell, with further labels on every sample.

    Args:
        labels: Name -> value; a sample's own label of the same name stays as it is.
    """

    def __init__(self, parts: Iterable[Collects], labels: Mapping[str, str] = _NOTHING) -> None:
        self._parts = list(parts)
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        """Yield the families of all parts."""
        for part in self._parts:
            for family in part.collect():
                yield Alias(family.name, added=self._labels).of(family) if self._labels else family


@dataclass(frozen=True, slots=True)
class Alias:
    """How a family is shown.

    Attributes:
        name: Its name, without the `_total` of counters.
        bounds: Ends of a histogram's buckets that are shown; None: all.
        added: Further labels.
    """

    name: str
    bounds: Collection[float] | None = None
    added: Mapping[str, str] = field(default_factory=dict)

    def of(self, family: Metric) -> Metric:
        """Return the family under this name."""
        shown = Metric(self.name, family.documentation, family.type)
        for sample in family.samples:
            if self.bounds is None or self._shows(sample.labels.get("le", "+Inf")):
                name = self.name + sample.name.removeprefix(family.name)
                shown.samples.append(sample._replace(name=name, labels={**self.added, **sample.labels}))
        return shown

    def _shows(self, end: str) -> bool:
        return end == "+Inf" or float(end) in (self.bounds or ())


def token_bounds(most: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20, 50 and so on, up to `most`."""
    found: list[float] = []
    power = 1
    while power <= most:
        found += [power * digit for digit in (1, 2, 5) if power * digit <= most]
        power *= 10
    return tuple(found)
