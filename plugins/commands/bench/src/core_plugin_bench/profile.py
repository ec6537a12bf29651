"""`--profile`: how the time of a benchmark divides among the phases of its steps."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from core.api import OfflineEngine, StepPhase, Terminal

COLUMNS = ("phase", "count", "median ms", "p99 ms", "share", "what")


def add_flag(group: argparse._ArgumentGroup) -> None:
    """Add the flag."""
    group.add_argument("--profile", action="store_true", help="Show how long each phase of a step takes.")


@contextmanager
def profiled(engine: OfflineEngine, phases: Sequence[StepPhase], *, wanted: bool) -> Iterator[dict[str, Any]]:
    """Time what runs inside; yields what becomes the result's `profile`, empty without the flag."""
    figures: dict[str, Any] = {}
    if not wanted:
        yield figures
        return
    with engine.profile() as report:
        started = time.perf_counter()
        yield figures
        elapsed = time.perf_counter() - started
    figures |= summary(report, phases, elapsed)


def summary(report: Mapping[str, Sequence[float]], phases: Sequence[StepPhase], elapsed: float) -> dict[str, Any]:
    """Return phase -> `count`, `total_s`, `median_ms`, `p99_ms` and `share` of the elapsed seconds, in step order.

    Shares do not add up to 1: the engine's phases run beside the worker's, and some are parts of others.
    """
    return {
        phase: {
            "count": int(report[phase][0]),
            "total_s": report[phase][1],
            "median_ms": report[phase][2] * 1e3,
            "p99_ms": report[phase][3] * 1e3,
            "share": report[phase][1] / elapsed,
        }
        for phase in (one.name for one in phases)
        if phase in report
    }


def show_profile(terminal: Terminal, figures: Mapping[str, Mapping[str, float]], phases: Sequence[StepPhase]) -> None:
    """Print the phases as a table; nothing without any."""
    known = {phase.name: phase for phase in phases}
    if not figures:
        return
    rows = [
        (
            f"  {phase}" if known[phase].inner else phase,
            f"{one['count']:,}",
            f"{one['median_ms']:.3f}",
            f"{one['p99_ms']:.3f}",
            f"{one['share']:.1%}",
            known[phase].what,
        )
        for phase, one in figures.items()
    ]
    print("\nPhases of a step")
    print(terminal.table(COLUMNS, rows, right=(1, 2, 3, 4)), flush=True)
