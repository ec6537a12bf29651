"""What the engines' runners share. Runs in the environments of the engines: standard library only."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIRST_TOKEN, TOKENS = 256, 32000


def read_spec() -> dict[str, Any]:
    """Return what was asked for: `model`, `dtype`, `threads`, `kv_mib`, `repeats`, `flags` and `cases`."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    return spec


def prompts(case: dict[str, Any], seed: int) -> list[list[int]]:
    """Return the random prompts of a case."""
    source = random.Random(seed)
    return [[source.randrange(FIRST_TOKEN, TOKENS) for _ in range(case["input_len"])] for _ in range(case["batch"])]


Generate = Callable[[list[list[int]], int], int]
"""`generate(prompts, output_len)` returns the tokens that it made."""


def time_cases(spec: dict[str, Any], generate: Generate) -> dict[str, list[float]]:
    """Time all cases: one run to warm up, then the repeats; a single run of those that take minutes."""
    found: dict[str, list[float]] = {}
    for case in spec["cases"]:
        if case.get("held"):
            found[case["name"]] = time_held(spec, case, generate)
            continue
        once = case.get("once")
        seconds = [_timed(generate, case, prompts(case, seed=n), case["output_len"]) for n in range(_runs(spec, case))]
        found[case["name"]] = seconds if once else seconds[1:]
    return found


def time_held(spec: dict[str, Any], case: dict[str, Any], generate: Generate) -> list[float]:
    """Return the seconds of the tokens after the first, of every repeat: the prefix cache is to hold the prompt."""
    batch = prompts(case, seed=0)
    _timed(generate, case, batch, case["output_len"])
    lengths = (case["output_len"], 1)
    pairs = [[_timed(generate, case, batch, length) for length in lengths] for _ in range(spec["repeats"])]
    return [whole - first for whole, first in pairs]


def _runs(spec: dict[str, Any], case: dict[str, Any]) -> int:
    return 1 if case.get("once") else 1 + int(spec["repeats"])


def _timed(generate: Generate, case: dict[str, Any], batch: list[list[int]], output_len: int) -> float:
    begin = time.perf_counter()
    made = generate(batch, output_len)
    seconds = time.perf_counter() - begin
    if made != len(batch) * output_len:
        raise SystemExit(f"{case['name']}: {made} tokens instead of {len(batch) * output_len}")
    return seconds


def since_start() -> float:
    """Return the seconds since this process was started, interpreter and imports included."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def _busy() -> float:
    """Return the seconds of CPU that the whole machine has spent."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    ticks = [int(field) for field in fields[:8]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    return sum(os.times()[:4])


_BEGAN = time.monotonic(), _busy(), _own()


def others(also: float = 0.0) -> float:
    """Return the share of the machine that others used while this process ran.

    Args:
        also: Seconds of CPU of processes that belong to the measurement but were not started by this one.
    """
    began, busy, own = _BEGAN
    span = (time.monotonic() - began) * (os.cpu_count() or 1)
    return max(0.0, (_busy() - busy) - (_own() - own) - also) / span


def cpu_seconds(session: int) -> float:
    """Return the seconds of CPU that the living processes of a session have spent."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def report(*, also: float = 0.0, **fields: Any) -> None:
    """Hand the result over to the parent."""
    print("RESULT " + json.dumps({**fields, "others": others(also)}), flush=True)
