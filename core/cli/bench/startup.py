"""`core bench startup`: from the start of the process until the server is ready."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from core.api.errors import EngineError
from core.config.flags import add_option_flags, to_argv
from core.config.load import load_options

_POLL = 0.01
_STOP_TIMEOUT = 30.0
_LAST_LINES = 5


def register(cases: Any) -> None:
    """Add the case."""
    parser = cases.add_parser("startup", help="Seconds from process start to ready.")
    group = parser.add_argument_group("benchmark")
    group.add_argument("--num-iters", type=int, default=3, metavar="N", help="Starts measured (default: 3).")
    group.add_argument(
        "--warmup", "--num-iters-warmup", type=int, default=1, metavar="N", help="Starts before (default: 1)."
    )
    group.add_argument("--output-json", metavar="FILE", help="Write the result there.")
    add_option_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, print and save."""
    from core.cli.bench.report import save, show
    from core.cli.bench.stats import quantiles

    options = load_options(args).options
    environ = {**os.environ, **({"CORE_API_KEY": options.server.api_key} if options.server.api_key else {})}
    seconds = [
        measure(_command(to_argv(options, secrets=False)), environ, options.runtime.start_timeout)
        for _ in range(args.warmup + max(1, args.num_iters))
    ][args.warmup :]
    result = {
        "avg_startup_time": sum(seconds) / len(seconds),
        "startup_times": seconds,
        "startup_percentiles": quantiles(seconds),
    }
    show(
        "Start-up",
        [("average", f"{result['avg_startup_time']:.3f} s"), ("median", f"{sorted(seconds)[len(seconds) // 2]:.3f} s")],
    )
    if args.output_json:
        save(args.output_json, result)
    return 0


def _command(flags: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "core.cli", "serve", *flags]


def measure(command: Sequence[str], environ: Mapping[str, str], timeout: float) -> float:
    """Start a server on a free port, wait until it is ready, end it, and return the seconds to readiness.

    Raises:
        EngineError: It ended or did not get ready in time (CORE-E190); the message has its last words.
    """
    port = _free_port()
    with tempfile.TemporaryFile() as log:
        started = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)], stdout=log, stderr=log, env=dict(environ)
        )
        try:
            _await_ready(process, f"http://127.0.0.1:{port}/ready", started + timeout, log)
            return time.perf_counter() - started
        finally:
            _stop(process)


def _await_ready(process: subprocess.Popen[bytes], url: str, deadline: float, log: IO[bytes]) -> None:
    import httpx

    with httpx.Client(timeout=5.0, trust_env=False) as http:
        while process.poll() is None and time.perf_counter() < deadline:
            try:
                if http.get(url).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(_POLL)
    log.seek(0)
    last = " | ".join(log.read().decode(errors="replace").strip().splitlines()[-_LAST_LINES:])
    why = "did not get ready in time" if process.poll() is None else f"ended with status {process.returncode}"
    raise EngineError("CORE-E190", f"the server {why}: {last or 'it said nothing'}.", hint="Run `core serve` by hand.")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
