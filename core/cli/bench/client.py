"""`core bench client`: what the load generator itself costs, against a stub server that computes nothing.

A serving benchmark whose client is the bottleneck measures the client. This case says up to which rate it is not.
"""

from __future__ import annotations

import argparse
from typing import Any


def register(cases: Any) -> None:
    """Add the case."""
    parser = cases.add_parser("client", help="Cost of the load generator itself, against a stub server.")
    group = parser.add_argument_group("benchmark")
    group.add_argument("--num-prompts", type=int, default=64, metavar="N", help="Streams open at once (default: 64).")
    group.add_argument("--output-len", type=int, default=128, metavar="N", help="Chunks of a stream (default: 128).")
    group.add_argument("--gap-ms", type=float, default=10.0, metavar="MS", help="Between chunks (default: 10).")
    group.add_argument("--output-json", metavar="FILE", help="Write the result there.")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, print and save."""
    from core.cli.bench.report import figure_rows, save, show

    result = measure(args.num_prompts, args.output_len, args.gap_ms / 1e3)
    show("Client", figure_rows(result))
    if args.output_json:
        save(args.output_json, result)
    return 0


def measure(streams: int, chunks: int, gap: float) -> dict[str, Any]:
    """Return the client's cost: microseconds of CPU a chunk, and the chunks per second that one core could take in."""
    import signal
    import subprocess
    import sys

    from core.cli.bench.load import Pace, Target, run_load, run_loop
    from core.cli.bench.prompts import Prompt
    from core.signals import held_back

    command = [sys.executable, "-m", "core.cli.bench.stub", str(chunks), str(gap)]
    with held_back(signal.SIGINT):  # it ends with this process, and has nothing to say about it
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process as stub:
        try:
            port = int((stub.stdout.readline() if stub.stdout else "") or 0)
            target = Target(f"http://127.0.0.1:{port}/v1/completions", ("stub",))
            prompts = [Prompt([1] * 128, chunks)] * streams
            done = run_loop(lambda: run_load(target, prompts, Pace([0.0] * streams, warmups=streams)))
        finally:
            stub.terminate()
    taken = sum(len(record.itl) + 1 for record in done.records if not record.error)
    return {
        "failed": sum(bool(record.error) for record in done.records),
        "chunks": taken,
        "chunks_per_second": taken / done.duration,
        "client_cpu_share": done.client_cpu / done.duration,
        "cpu_us_per_chunk": done.client_cpu / max(taken, 1) * 1e6,
        "max_chunks_per_second": taken / max(done.client_cpu, 1e-9),
    }
