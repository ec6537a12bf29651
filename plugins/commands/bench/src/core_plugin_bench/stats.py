"""Summary figures of samples. Pure; numpy only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def percentile_key(percentile: float) -> str:
    """Return `p99`, `p99.9`: a percentile as it stands in a key."""
    return f"p{percentile:g}"


def describe(name: str, seconds: Sequence[float], percentiles: Sequence[float]) -> dict[str, float]:
    """Return `mean_NAME_ms`, `median_NAME_ms`, `std_NAME_ms` and `pXX_NAME_ms` of samples in seconds.

    The deviation is that of the population; percentiles are interpolated linearly; without samples all are 0.
    """
    samples = np.asarray(seconds if len(seconds) else [0.0], dtype=np.float64) * 1e3
    figures = {
        f"mean_{name}_ms": float(samples.mean()),
        f"median_{name}_ms": float(np.median(samples)),
        f"std_{name}_ms": float(samples.std()),
    }
    for percentile in percentiles:
        figures[f"{percentile_key(percentile)}_{name}_ms"] = float(np.percentile(samples, percentile))
    return figures


def quantiles(seconds: Sequence[float], percentiles: Sequence[float] = (10, 25, 50, 75, 90, 99)) -> dict[str, float]:
    """Return `percentile -> seconds` with the percentiles as text."""
    return {f"{percentile:g}": float(np.percentile(seconds, percentile)) for percentile in percentiles}


def peak_in_windows(times: Sequence[float], width: float = 1.0) -> int:
    """Return the most events that fall into one window of `width` seconds, windows starting at the first event."""
    if not times:
        return 0
    offsets = (np.asarray(times) - min(times)) // width
    return int(np.bincount(offsets.astype(np.int64)).max())


def peak_overlap(spans: Sequence[tuple[float, float]]) -> int:
    """Return the most spans `(start, end)` that are open at once."""
    events = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    return int(np.cumsum([change for _, change in events]).max()) if events else 0
