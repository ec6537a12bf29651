"""What the engine itself costs in a step: schedule and settle, without a model, a worker or a device.

    python benchmarks/engine_overhead.py [--rows 1 8 32 256 1000] [--steps 400] [--groups 7] [--json FILE]

Requests of different lengths decode together through the real scheduler, row table, block pool and settler; every
sampled token is made up. Times are those of whole steps in microseconds, the ordinary case (every row decodes; now and
then one needs a block, or ends and the next takes its place) and the worst one both.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from core.api.kvspecs import KVSpec
from core.api.sampling_params import SamplingParams
from core.api.steps import StepResult
from core.engine.blocks import BlockPool
from core.engine.hashing import BlockHasher
from core.engine.latency import LatencyTarget
from core.engine.managers import managers_for
from core.engine.messages import Add
from core.engine.prefix import PrefixCache
from core.engine.request import Request
from core.engine.rows import RequestTable
from core.engine.scheduler import Scheduler
from core.engine.settle import Settler
from core.engine.step_budget import Limits

BLOCK, MAX_LEN, PROMPT, OUTPUT = 16, 2048, 64, 300
WINDOW = 64
TOKEN = 7


class ArrivalOrder:
    """First come, first served; the latest admitted gives way."""

    def key(self, request: Request) -> tuple[int, ...]:
        """Return the order of admission."""
        return (request.arrival,)

    def victim(self, running: list[Request]) -> int:
        """Return the index of the request that gives way."""
        return len(running) - 1


class Engine:
    """A scheduler and a settler with `rows` requests that run at once, and as many waiting as it takes."""

    def __init__(self, rows: int, *, prefix: bool, groups: int = 1) -> None:
        self.hasher = BlockHasher(BLOCK)
        managers = managers_for([KVSpec(), *[KVSpec("sliding", WINDOW)] * (groups - 1)], BLOCK)
        pool = BlockPool(groups * rows * MAX_LEN // BLOCK + 2)
        cache = PrefixCache(pool, self.hasher, enabled=prefix, managers=managers)
        limits = Limits(rows, 2 * rows + 2048, 2048, MAX_LEN)
        self.latency = LatencyTarget(0.2, BLOCK)
        table = RequestTable(rows, MAX_LEN, BLOCK, groups)
        self.scheduler = Scheduler(limits, table, cache, ArrivalOrder(), latency=self.latency)
        self.scheduler.spread = True  # as in a server
        self.settler = Settler(self.scheduler)
        self._added = 0

    def add(self, rng: np.random.Generator) -> None:
        """Put one more request in line."""
        self._added += 1
        prompt = rng.integers(0, 1000, int(rng.integers(PROMPT // 2, PROMPT)), dtype=np.int32)
        params = SamplingParams(temperature=0.0, max_tokens=int(rng.integers(OUTPUT // 2, OUTPUT)))
        message = Add(handle=self._added, prompt=prompt.tobytes(), params=params, stop_ids=[2])
        self.scheduler.add(Request(message, self._added, self.hasher.root()))

    def step(self) -> tuple[float, float]:
        """Run one step; return the seconds that scheduling and settling took."""
        begin = time.perf_counter()
        step = self.scheduler.schedule()
        scheduled = time.perf_counter()
        if step is None:
            raise RuntimeError("nothing to schedule")
        result = StepResult(step.plan.number, np.full(int(step.plan.samples.sum()), TOKEN, np.int32))
        launched = time.perf_counter()
        self.latency.note(step.plan, result, 0.02)
        self.settler.settle(step, result)
        return scheduled - begin, time.perf_counter() - launched


def measure(rows: int, steps: int, *, prefix: bool = True, groups: int = 1) -> dict[str, Any]:
    """Return the median, the 99th percentile and the worst of `steps` steps with `rows` running requests."""
    rng = np.random.default_rng(0)
    engine = Engine(rows, prefix=prefix, groups=groups)
    for _ in range(rows):
        engine.add(rng)
    while len(engine.scheduler.running) < rows:
        engine.step()
    gc.collect()
    times = []
    for _ in range(steps):
        for _ in range(rows - len(engine.scheduler.requests)):
            engine.add(rng)
        times.append(engine.step())
    schedule, settle = np.array(times).T * 1e6
    both = schedule + settle
    return {
        "rows": rows,
        "schedule_us": float(np.median(schedule)),
        "settle_us": float(np.median(settle)),
        "median_us": float(np.median(both)),
        "p99_us": float(np.percentile(both, 99)),
        "max_us": float(both.max()),
        "ns_per_row": float(np.median(both) / rows * 1e3),
    }


def main() -> None:
    """Measure, print a table, and write JSON if asked for."""
    parser = argparse.ArgumentParser(description="Cost of schedule and settle in microseconds a step.")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 256, 1000])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--no-prefix-cache", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--groups", type=int, default=1, help="cache groups: one keeps everything, the others a window")
    args = parser.parse_args()
    results = [measure(rows, args.steps, prefix=not args.no_prefix_cache, groups=args.groups) for rows in args.rows]
    print(f"{'rows':>6} {'schedule':>9} {'settle':>9} {'both':>9} {'p99':>9} {'max':>9}   microseconds a step")
    for one in results:
        figures = [one[name] for name in ("schedule_us", "settle_us", "median_us", "p99_us", "max_us")]
        print(f"{one['rows']:>6} " + " ".join(f"{figure:>9.1f}" for figure in figures))
    if args.json:
        Path(args.json).write_text(json.dumps({"engine_overhead": results}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
