"""`core bench client`: what the load generator itself costs, against a stub server that computes nothing.

A serving benchmark whose client is the bottleneck measures the client. This case says up to which rate it is not.
"""

from __future__ import annotations

import argparse
from typing import Any

from core.api import CommandHost


def register(cases: Any, host: CommandHost) -> None:
    """Add the case."""
    parser = cases.add_parser("client", help="Cost of the load generator itself, against a stub server.")
    group = parser.add_argument_group("benchmark")
    group.add_argument("--num-prompts", type=int, default=64, metavar="N", help="Streams open at once (default: 64).")
    group.add_argument("--output-len", type=int, default=128, metavar="N", help="Chunks of a stream (default: 128).")
    group.add_argument("--gap-ms", type=float, default=10.0, metavar="MS", help="Between chunks (default: 10).")
    group.add_argument("--output-json", metavar="FILE", help="Write the result there.")
    parser.set_defaults(case=run)


def run(host: CommandHost, args: argparse.Namespace) -> int:
    """Measure, print and save."""
    from core_plugin_bench.report import figure_rows, save, show

    result = measure(host, args.num_prompts, args.output_len, args.gap_ms / 1e3)
    show(host.terminal, "Client", figure_rows(result))
    if args.output_json:
        save(host.files, args.output_json, result)
    return 0


def measure(host: CommandHost, streams: int, chunks: int, gap: float) -> dict[str, Any]:
    """Return the client's cost: microseconds of CPU a chunk, and the chunks per second that one core could take in."""
    import signal
    import subprocess
    import sys

    from core_plugin_bench.load import Pace, Target, run_load, run_loop
    from core_plugin_bench.prompts import Prompt

    command = [sys.executable, "-m", "core_plugin_bench.stub", str(chunks), str(gap)]
    with host.signals.held_back(signal.SIGINT):  # it ends with this process, and has nothing to say about it
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process as stub:
        try:
            port = int((stub.stdout.readline() if stub.stdout else "") or 0)
            target = Target(f"http://127.0.0.1:{port}/v1/completions", ("stub",))
            prompts = [Prompt([1] * 128, chunks)] * streams
            pace = Pace([0.0] * streams, warmups=streams)
            done = run_loop(host.signals, lambda: run_load(host.servers, target, prompts, pace))
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
