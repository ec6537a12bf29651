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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from core.api import CommandHost, EngineError

_POLL = 0.01
_STOP_TIMEOUT = 30.0
_LAST_LINES = 5


def register(cases: Any, host: CommandHost) -> None:
    """Add the case."""
    parser = cases.add_parser("startup", help="Seconds from process start to ready, cold and warm.")
    group = parser.add_argument_group("benchmark")
    group.add_argument(
        "--num-iters-cold", type=int, default=0, metavar="N", help="Starts with the model not in memory."
    )
    group.add_argument(
        *("--num-iters-warm", "--num-iters"), type=int, default=3, metavar="N", help="Starts measured (default: 3)."
    )
    group.add_argument(
        "--warmup", "--num-iters-warmup", type=int, default=1, metavar="N", help="Starts before (default: 1)."
    )
    group.add_argument("--output-json", metavar="FILE", help="Write the result there.")
    group.add_argument("--profile", action="store_true", help="Show the phases of one start, and its memory, instead.")
    host.options.add(parser)
    parser.set_defaults(case=run)


def run(host: CommandHost, args: argparse.Namespace) -> int:
    """Measure, print and save."""
    from core_plugin_bench.report import save, show

    options = host.options.load(args)
    key, timeout = options.value("server.api_key"), options.value("runtime.start_timeout")
    flags = options.flags(secrets=False)
    environ = {**os.environ, **({"CORE_API_KEY": key} if key else {})}
    if args.profile:
        return _profile(host, host.servers.command(flags), environ, timeout)

    def start() -> float:
        return measure(host.servers.command(flags), environ, timeout)

    result: dict[str, Any] = {}
    if args.num_iters_cold:
        files = host.servers.files(options)
        with host.terminal.counted("cold starts", args.num_iters_cold) as starts:
            result |= _figures("cold", [_cold(start, files) for _ in starts])
    with host.terminal.counted("starts", args.warmup + max(1, args.num_iters_warm)) as starts:
        result |= _figures("warm", [start() for _ in starts][args.warmup :])
    rows = [(name.replace("_", " "), f"{value:.3f} s") for name, value in result.items() if name[:3] == "avg"]
    show(host.terminal, "Start-up", rows)
    if args.output_json:
        save(host.files, args.output_json, result)
    return 0


def _profile(host: CommandHost, command: Sequence[str], environ: Mapping[str, str], timeout: float) -> int:
    """Start once with the reports of all phases, and print them."""
    from core_plugin_bench.phases import memory_table, peak_memory, phases_table, read_phases

    shown: list[str] = []

    def ready(pid: int, log: IO[bytes]) -> None:
        memory = memory_table(host.terminal, peak_memory(pid)) if sys.platform == "linux" else ""
        log.seek(0)
        phases = read_phases(host.servers, log.read().decode(errors="replace").splitlines())
        shown.extend((phases_table(host.terminal, phases), memory))

    measure([*command, "--log-level", "debug", "--log-format", "json"], environ, timeout, ready)
    print("\n\n".join(filter(None, shown)), flush=True)
    return 0


def _figures(kind: str, seconds: list[float]) -> dict[str, Any]:
    from core_plugin_bench.stats import quantiles

    return {
        f"avg_{kind}_startup_time": sum(seconds) / len(seconds),
        f"{kind}_startup_times": seconds,
        f"{kind}_startup_percentiles": quantiles(seconds),
    }


def _cold(start: Callable[[], float], files: Sequence[Path]) -> float:
    drop_pages(files)
    return start()


def drop_pages(files: Sequence[Path]) -> None:
    """Take files out of the page cache, as far as no other process has them mapped."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def measure(
    command: Sequence[str],
    environ: Mapping[str, str],
    timeout: float,
    ready: Callable[[int, IO[bytes]], None] | None = None,
) -> float:
    """Start a server on a free port, wait until it is ready, end it, and return the seconds to readiness.

    Args:
        ready: Called with process id and log of the server once it is ready.

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
            seconds = time.perf_counter() - started
            if ready is not None:
                ready(process.pid, log)
            return seconds
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
