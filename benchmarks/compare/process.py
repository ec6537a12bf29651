"""Running a measurement as a process: its result, its peak memory, and how busy the machine was before."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

_SMALLEST = 24 * 2**20
"""Processes below this many bytes are wrappers (a shell, a lock), not the engine."""
_LAST_LINES = 4
_FOLDERS = re.compile(r"(?<![\w:/.])(?:~|/[\w.+-]+)(?:/[\w.+-]+)*/")


class MeasurementError(Exception):
    """A measurement ended without a result; the text has its last lines."""


@dataclass(frozen=True)
class Measured:
    """What a runner reported, and the peak resident memory of its process tree in MiB."""

    result: dict[str, Any]
    peak_mib: float


def measure(command: Sequence[str], environ: Mapping[str, str], timeout: float) -> Measured:
    """Run a command that prints `RESULT {json}` and return what it found.

    Raises:
        MeasurementError: It failed, took too long, or printed no result.
    """
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environ},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        with PeakMemory(process.pid) as peak:
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                raise MeasurementError(f"not done within {timeout:g} s") from None
            finally:
                end(process)
        log.seek(0)
        text = log.read()
    lines = [line for line in text.splitlines() if line.startswith("RESULT ")]
    if process.returncode != 0 or not lines:
        raise MeasurementError(f"ended with status {process.returncode}: {last_words(text)}")
    return Measured(json.loads(lines[-1].removeprefix("RESULT ")), peak.mib)


def end(process: subprocess.Popen[str]) -> None:
    """End a process that was started as the leader of a session, and all that it started."""
    for sign, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def last_words(text: str) -> str:
    """Return the last lines of a log without the folders of this machine."""
    lines = [line.strip() for line in _FOLDERS.sub("", text).splitlines() if any(map(str.isalnum, line))]
    return " | ".join(lines[-_LAST_LINES:])[-600:] or "it said nothing"


class PeakMemory:
    """Follows a process tree: the largest sum, over those alive together, of what each had resident at its peak."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self.mib = 0.0

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._stop.wait(0.25):
            peaks = [_high_water(pid) for pid in _tree(self._pid)]
            self.mib = max(self.mib, sum(peak for peak in peaks if peak >= _SMALLEST) / 2**20)


def _tree(pid: int) -> list[int]:
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return []


def _high_water(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
