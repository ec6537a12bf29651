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


def time_cases(spec: dict[str, Any], generate: Callable[[list[list[int]], int], int]) -> dict[str, list[float]]:
    """Time `generate(prompts, output_len)`, which returns the tokens it made: one run to warm up, then the repeats."""
    found: dict[str, list[float]] = {}
    for case in spec["cases"]:
        seconds = []
        for repeat in range(1 + spec["repeats"]):
            batch = prompts(case, seed=repeat)
            begin = time.perf_counter()
            made = generate(batch, case["output_len"])
            seconds.append(time.perf_counter() - begin)
            if made != case["batch"] * case["output_len"]:
                raise SystemExit(f"{case['name']}: {made} tokens instead of {case['batch'] * case['output_len']}")
        found[case["name"]] = seconds[1:]
    return found


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
