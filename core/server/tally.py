"""Figures of single tokens, which are counted for every streamed chunk: plain numbers, read when the page is asked for.

All are counted on the event loop's thread, so that none of it needs a lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class TokenTally(Collector):
    """Generated tokens, and the time between two of a sequence.

    Args:
        bounds: Upper ends of the histogram's buckets in seconds, ascending; the last bucket has none.

    Attributes:
        generated: Tokens so far.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.generated = 0
        self._bounds = tuple(bounds)
        self._gaps = [0] * (len(self._bounds) + 1)
        self._seconds = 0.0

    def gap(self, seconds: float) -> None:
        """Count the time since the sequence's last token."""
        self._gaps[bisect_left(self._bounds, seconds)] += 1
        self._seconds += seconds

    def describe(self) -> Iterator[Metric]:
        """Return nothing: the names below clash with no other."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield both figures."""
        yield CounterMetricFamily("core_generation_tokens", "Generated tokens.", value=self.generated)
        ends = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        yield HistogramMetricFamily(
            "core_inter_token_latency_seconds",
            "Time between two tokens.",
            buckets=list(zip(ends, accumulate(self._gaps), strict=True)),
            sum_value=self._seconds,
        )
