"""A decode step beside a process that wants one of its cores: how much longer it takes, and what threads took over.

    python benchmarks/cpu_neighbour.py [--threads 2] [--rows 1] [--tries 5] [--seconds 0.5]

The products of SmolLM2-135M with random weights, and what is between them but for attention, as one program. In turn
without and with a neighbour, which spins on the last processor that this process may use; the least and the median of a
try's means count. To compare libraries: `CORE_CPU_LIBRARY=OTHER.so python benchmarks/cpu_neighbour.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import torch
from core_plugin_cpu.native import elementwise, gemm, library, teams
from core_plugin_cpu.native.program import Program
from core_plugin_cpu.native.record import record

LAYERS, SIZES, HEAD = 30, ((960, 576), (576, 576), (3072, 576), (576, 1536)), (49152, 576)
SPIN = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


def step(rows: int) -> Program:
    """Return a decode step of so many rows, weights and activations in int8."""

    def packed(n: int, k: int) -> gemm.PackedWeight:
        return gemm.pack_int8(torch.randint(-128, 128, (n, k), dtype=torch.int8), torch.rand(n) / 50)

    layers, head = [[packed(*size) for size in SIZES] for _ in range(LAYERS)], packed(*HEAD)
    x, norm = torch.randn(rows, SIZES[0][1]).bfloat16(), torch.rand(SIZES[0][1]).bfloat16()

    def work() -> torch.Tensor:
        hidden, residual = elementwise.rms_norm(x, norm, 1e-5), x
        for qkv, out, wide, narrow in layers:
            mixed = gemm.linear(gemm.linear(hidden, qkv)[:, : out.k], out)
            hidden, residual = elementwise.add_rms_norm(mixed, residual, norm, 1e-5)
            mixed = gemm.linear(elementwise.gated(gemm.linear(hidden, wide), "silu"), narrow)
            hidden, residual = elementwise.add_rms_norm(mixed, residual, norm, 1e-5)
        return gemm.linear(hidden, head)

    return record(work, x, run=False)[0]


@contextlib.contextmanager
def neighbour() -> Iterator[None]:
    """Have a process spin on one processor meanwhile."""
    process = subprocess.Popen([sys.executable, "-c", SPIN, str(max(os.sched_getaffinity(0)))])
    try:
        time.sleep(0.3)
        yield
    finally:
        process.kill()
        process.wait()


def mean(program: Program, seconds: float) -> float:
    """Return the mean time of a step in microseconds."""
    begin, runs = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        program.run()
        runs += 1
    return (time.perf_counter() - begin) / runs * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one try")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with torch.inference_mode():
        program = step(args.rows)
        mean(program, args.seconds)
        quiet, busy = [], []
        for _ in range(args.tries):
            quiet.append(mean(program, args.seconds))
            with neighbour():
                busy.append(mean(program, args.seconds))
    print(f"{args.threads} threads, {args.rows} rows, {library.isa()}; microseconds a step, least (median)")
    for name, found in (("quiet", quiet), ("with a neighbour", busy)):
        print(f"  {name:18} {min(found):9.0f} ({statistics.median(found):.0f})")
    print(f"  {'times':18} {min(busy) / min(quiet):9.2f} ({statistics.median(busy) / statistics.median(quiet):.2f})")
    with contextlib.suppress(AttributeError):  # a library from before there were counts
        print(f"  {teams.counts()}")


if __name__ == "__main__":
    main()
