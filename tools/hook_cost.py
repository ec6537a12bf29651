"""Measure what a hook call costs: `python tools/hook_cost.py [--seconds S]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from core.api.requests import RequestDraft
from core.api.sampling_params import SamplingParams
from core.plugins.entry import Entry
from core.plugins.hooks import Hooks

SOURCE = """
from core.api import RequestPatch, hookimpl

@hookimpl
def core_request(request):
    return None

@hookimpl
def core_engine_event(event):
    return None
"""
ROUNDS = 5


def microseconds(call: Callable[[], object], seconds: float) -> float:
    """Return the time of one call: the best of several rounds, which together take about `seconds`."""
    count, spent = 1, 0.0
    while spent < seconds / ROUNDS / 4:
        count *= 4
        spent = _timed(call, count)
    return min(_timed(call, count) for _ in range(ROUNDS)) / count * 1e6


def _timed(call: Callable[[], object], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - begin


def measure(seconds: float) -> dict[str, float]:
    """Return microseconds per call of hooks with one implementer, and of one that nobody implements."""
    draft = RequestDraft([1, 2, 3], SamplingParams())
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "hook_cost_plugin.py").write_text(SOURCE)
        sys.path.insert(0, folder)
        try:
            hooks = Hooks([Entry("core.plugins", "cost", "hook-cost", "1", "hook_cost_plugin")])
        finally:
            sys.path.remove(folder)
    return {
        "core_request": microseconds(lambda: hooks.request(draft, lambda draft, patch: draft), seconds),
        "core_engine_event": microseconds(lambda: hooks.engine_event("ready"), seconds),
        "hook nobody implements": microseconds(lambda: hooks.model_loaded(None, {}), seconds),
    }


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Measure what a hook call costs.")
    parser.add_argument("--seconds", type=float, default=1.0, help="Time for each figure.")
    figures = measure(parser.parse_args().seconds)
    print(", ".join(f"{name}: {value:.1f} µs per call" for name, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
