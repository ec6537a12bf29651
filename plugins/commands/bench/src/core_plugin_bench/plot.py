"""`--plot`: how times are distributed, as bars of text.

Bars need no library, no browser and no display, pass through ssh and into a log, and one look at them says what a
percentile hides: two humps, a long tail. For other pictures the JSON of a result has every sample
(`--output-json`; `--save-detailed` of `core bench serve`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from core.api import Terminal

if TYPE_CHECKING:
    import numpy as np

_BINS = 10
_WIDTH = 40
_PARTS = " ▏▎▍▌▋▊▉"
"""Eighths of a character."""


def add_flag(group: argparse._ArgumentGroup) -> None:
    """Add the flag."""
    group.add_argument("--plot", action="store_true", help="Draw how the measured times are distributed.")


def show_plot(terminal: Terminal, title: str, samples: Sequence[float], unit: str) -> None:
    """Print a histogram of samples under a title; nothing without samples."""
    if len(samples):
        print(f"\n{title}, {unit} ({len(samples):,} samples)\n{histogram(terminal, samples)}", flush=True)


def histogram(terminal: Terminal, samples: Sequence[float]) -> str:
    """Return a line for each range of values: its bounds, how many samples are in it, and a bar.

    Ranges are equal up to the 99th percentile; the last one has what is above, which would otherwise squeeze the rest.
    """
    import numpy as np

    values = np.asarray(samples, dtype=np.float64)
    low, high, most = float(values.min()), float(np.percentile(values, 99)), float(values.max())
    bounds = np.linspace(low, high, _BINS + 1) if high > low else np.array([low])
    if most > high or len(bounds) == 1:
        bounds = np.append(bounds, most)
    counts = _counts(values, bounds)
    places = _places(bounds)
    rows = [
        (f"{lower:,.{places}f} to {upper:,.{places}f}", f"{count:,}", _bar(count / max(counts)))
        for lower, upper, count in zip(bounds, bounds[1:], counts)
    ]
    return terminal.table((), rows, right=(0, 1))


def _counts(values: np.ndarray, bounds: np.ndarray) -> list[int]:
    """Count the values above one bound up to the next; the first range has its lower bound, too."""
    import numpy as np

    inner = np.searchsorted(bounds[1:-1], values, side="left")
    return [int(count) for count in np.bincount(inner, minlength=len(bounds) - 1)]


def _places(bounds: np.ndarray) -> int:
    """Return the decimals that tell neighbouring bounds apart."""
    import numpy as np

    step = float(bounds[1] - bounds[0])
    return int(np.clip(1 - np.floor(np.log10(step)), 0, 6)) if step > 0 else 2


def _bar(share: float) -> str:
    whole, part = divmod(round(share * _WIDTH * len(_PARTS)), len(_PARTS))
    return ("█" * whole + _PARTS[part]).rstrip()
