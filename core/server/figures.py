"""Figures on their way to the page: labels added, and what plugins read and give in place of the library's families."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from core.api.figures import Figure, FigureSample, FigureType, Histogram

MODEL = "model_name"

_TYPES: Mapping[str, FigureType] = types.MappingProxyType(
    {"counter": "counter", "gauge": "gauge", "histogram": "histogram", "unknown": "untyped"}
)
_OF_LIBRARY: Mapping[str, str] = types.MappingProxyType({ours: theirs for theirs, ours in _TYPES.items()})
_ENDLESS = "+Inf"


@dataclass(frozen=True, slots=True)
class Families(Collector):
    """Families that have been collected."""

    families: Sequence[Metric]

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        return iter(self.families)


class OwnFigures(Mapping[str, Figure]):
    """Core's figures by name, as plugins read them; each is made when it is asked for."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = {family.name: family for family in families}
        self._made: dict[str, Figure] = {}

    def __getitem__(self, name: str) -> Figure:
        """Return a figure. Raises `KeyError`."""
        if name not in self._made:
            self._made[name] = figure_of(self._families[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._families)

    def __len__(self) -> int:
        return len(self._families)


def labelled(family: Metric, labels: Mapping[str, str]) -> Metric:
    """Return a family with further labels; a sample's own label of the same name stays as it is."""
    shown = Metric(family.name, family.documentation, family.type)
    shown.samples = [one._replace(labels={**labels, **one.labels}) for one in family.samples]
    return shown


def figure_of(family: Metric) -> Figure:
    """Return what plugins read in place of a family."""
    kind = _TYPES[family.type]
    samples = _histograms(family) if kind == "histogram" else _numbers(family)
    return Figure(family.name, family.documentation, kind, list(samples))


def family_of(figure: Figure) -> Metric:
    """Return the library's family of a figure."""
    shown = Metric(figure.name, figure.help, _OF_LIBRARY[figure.type])
    for one in figure.samples:
        labels = dict(one.labels)
        if isinstance(one.value, Histogram):
            shown.samples += _rows(figure.name, labels, one.value)
        else:
            end = "_total" if figure.type == "counter" else ""
            shown.samples.append(Sample(figure.name + end, labels, one.value))
        if one.created is not None:
            shown.samples.append(Sample(f"{figure.name}_created", labels, one.created))
    return shown


def token_bounds(most: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20, 50 and so on, up to `most`."""
    found: list[float] = []
    power = 1
    while power <= most:
        found += [power * digit for digit in (1, 2, 5) if power * digit <= most]
        power *= 10
    return tuple(found)


def _numbers(family: Metric) -> Iterator[FigureSample]:
    created = {_key(one.labels): one.value for one in family.samples if one.name == f"{family.name}_created"}
    for one in family.samples:
        if one.name != f"{family.name}_created":
            yield FigureSample(one.value, one.labels, created.get(_key(one.labels)))


def _histograms(family: Metric) -> Iterator[FigureSample]:
    """Yield histograms, whose rows stand one behind the other."""
    labels: Mapping[str, str] = {}
    bounds: list[float] = []
    counts: list[float] = []
    for one in family.samples:
        if one.name.endswith("_bucket"):
            labels = {name: value for name, value in one.labels.items() if name != "le"}
            counts.append(one.value)
            if one.labels["le"] != _ENDLESS:
                bounds.append(float(one.labels["le"]))
        elif one.name.endswith("_sum"):
            yield FigureSample(Histogram(bounds, counts, one.value), labels)
            bounds, counts = [], []


def _rows(name: str, labels: dict[str, str], seen: Histogram) -> Iterator[Sample]:
    for end, count in zip([*map(str, map(float, seen.bounds)), _ENDLESS], seen.counts, strict=True):
        yield Sample(f"{name}_bucket", {**labels, "le": end}, count)
    yield Sample(f"{name}_count", labels, seen.counts[-1])
    yield Sample(f"{name}_sum", labels, seen.sum)


def _key(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))
