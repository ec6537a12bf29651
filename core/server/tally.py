"""Figures that are counted for every request or streamed chunk: plain numbers, read when the page is asked for.

All are counted on the event loop's thread, so that none of it needs a lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Distribution(Collector):
    """A histogram.

    Args:
        bounds: Upper ends of its buckets, ascending; the last bucket has none.
    """

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self._name, self._text = name, text
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def describe(self) -> Iterator[Metric]:
        """Return nothing: its name clashes with no other."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield the histogram."""
        ends = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        buckets = list(zip(ends, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._text, buckets=buckets, sum_value=self._sum)


class TokenTally(Collector):
    """Generated tokens, and the time between two of a sequence.

    Args:
        bounds: Upper ends of the histogram's buckets in seconds, as of `Distribution`.

    Attributes:
        generated: Tokens so far.
        gap: Counts the time since the sequence's last token.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.generated = 0
        self._gaps = Distribution("core_inter_token_latency_seconds", "Time between two tokens.", bounds)
        self.gap = self._gaps.observe

    def describe(self) -> Iterator[Metric]:
        """Return nothing: the names below clash with no other."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield both figures."""
        yield CounterMetricFamily("core_generation_tokens", "Generated tokens.", value=self.generated)
        yield from self._gaps.collect()
