"""Start a server and time it until it answers at `url`: `{"command": [...], "url": ..., "repeats": n}`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request

from common import read_spec, report

_DEADLINE = 1200.0


def answers(url: str) -> bool:
    """Whether the server is ready."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def start(command: list[str], url: str) -> float:
    """Return the seconds from the start of the process to readiness."""
    began = time.monotonic()
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        while not answers(url):
            if process.poll() is not None or time.monotonic() - began > _DEADLINE:
                raise SystemExit(f"the server ended with status {process.poll()}")
            time.sleep(0.01)
        return time.monotonic() - began
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def main() -> None:
    """Start it as often as asked."""
    spec = read_spec()
    report(ready_s=[start(spec["command"], spec["url"]) for _ in range(spec["repeats"])])


if __name__ == "__main__":
    main()
