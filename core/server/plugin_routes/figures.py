"""Figures of plugins on `/metrics`: which names they may have, and what of them cannot be shown."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import inf
from numbers import Real

from prometheus_client import generate_latest
from prometheus_client.core import Metric

from core.api.errors import PluginError
from core.api.figures import Figure, FigureCollector, FigureSample, Histogram
from core.plugins.drivers import describe
from core.server.figures import Families, family_of

logger = logging.getLogger(__name__)

RESERVED = ("core_", "process_")
"""Prefixes of core's own figures."""

MOST_SAMPLES = 10_000
"""Values that the figures of one collector have together, a bucket being one."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_ENDS = re.compile(r"_(?:total|created|bucket|count|sum)$")
"""Suffixes that the page adds to names: with them, two names may be one."""


class PluginFigures:
    """Figures of one collector of a plugin.

    Args:
        owner: Whose it is.
        names: What it may give.
        collect: Gives it.
    """

    def __init__(self, owner: str, names: Iterable[str], collect: FigureCollector) -> None:
        self.owner, self.names = owner, tuple(names)
        self._collect = collect
        self._failed = False

    def check(self, others: Iterable[PluginFigures]) -> None:
        """Refuse names that it cannot have. Raises `PluginError` CORE-P130.

        Args:
            others: What was declared before.
        """
        known = {_stem(name): one.owner for one in others for name in one.names}
        for name in self.names:
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise self._refusal(name, "names are letters, digits, _ and :")
            if name.startswith(RESERVED):
                raise self._refusal(name, f"core has those that begin with {' or '.join(RESERVED)}")
            if _stem(name) in known:
                raise self._refusal(name, f"route plugin {known[_stem(name)]} has declared it")
            known[_stem(name)] = self.owner

    def page(self, own: Mapping[str, Figure]) -> bytes:
        """Return their part of the page: nothing of what cannot be shown, which the log tells of once.

        Args:
            own: Core's figures.
        """
        try:
            return self.written(own)
        except Exception as error:
            if not self._failed:
                logger.error("CORE-P108 route plugin %s: figures cannot be shown: %s", self.owner, describe(error))
            self._failed = True
            return b""

    def written(self, own: Mapping[str, Figure]) -> bytes:
        """Return their part of the page. Raises what the collector raises, and `ValueError` for what is no figure."""
        found = list(self._collect(own))
        names = [one.name for one in found]
        if odd := [name for name in names if name not in self.names]:
            raise ValueError(f"{odd[0]!r} was not declared")
        if len(set(names)) < len(names):
            raise ValueError(f"one of {', '.join(names)} is given twice")
        families = [_checked(one) for one in found]
        if sum(len(one.samples) for one in families) > MOST_SAMPLES:
            raise ValueError(f"there are more than {MOST_SAMPLES} values")
        return generate_latest(Families(families))

    def _refusal(self, name: str, why: str) -> PluginError:
        return PluginError("CORE-P130", f"route plugin {self.owner} cannot have the figure {name!r}: {why}.")


def _stem(name: str) -> str:
    return _ENDS.sub("", name)


def _checked(figure: Figure) -> Metric:
    """Return the family of a figure that a scraper can read. Raises `ValueError`."""
    for one in figure.samples:
        for label, value in one.labels.items():
            if not _LABEL.fullmatch(label) or label == "le" or not isinstance(value, str):
                raise ValueError(f"{figure.name} cannot have the label {label}={value!r}")
        if not _fits(figure, one):
            raise ValueError(f"{figure.name} is a {figure.type}, of which {one.value!r} is no value")
    if len({tuple(sorted(one.labels.items())) for one in figure.samples}) < len(figure.samples):
        raise ValueError(f"{figure.name} has two values with the same labels")
    return family_of(figure)


def _fits(figure: Figure, sample: FigureSample) -> bool:
    if figure.type != "histogram":
        return isinstance(sample.value, Real)
    seen = sample.value
    if not isinstance(seen, Histogram) or len(seen.counts) != len(seen.bounds) + 1:
        return False
    rising = all(low < high for low, high in pairwise([-inf, *seen.bounds, inf]))
    return rising and all(low <= high for low, high in pairwise(seen.counts)) and isinstance(seen.sum, Real)
