"""Run one stage of an installation and say how far it is, in a line.

    python tools/stage.py --log .venv/install.log "torch" -- .venv/bin/python -m pip install torch

On a terminal the line has the seconds so far and what pip is doing. Elsewhere there is a line at the beginning, one at
the end and one each minute between them. What the command prints goes to the log; what it prints on standard error is
shown as well, as it comes. The exit status is the command's.
"""

from __future__ import annotations

import argparse
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

_DOING = re.compile(r"\s*((?:Collecting|Downloading|Using cached|Building|Preparing|Installing|Obtaining) .*\S)")
_TERMINAL_SECONDS, _PLAIN_SECONDS = 0.5, 60.0
_WIDTH = 100
_INTERRUPTED = 130


class Progress:
    """The line about a stage.

    Args:
        clock: Returns seconds.
    """

    def __init__(self, title: str, out: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.title, self._out, self._clock = title, out, clock
        self._terminal = out.isatty()
        self._began = self._shown = clock()
        self._doing = ""
        self._write(f"{title} ...")

    @property
    def interval(self) -> float:
        """Seconds between two looks at the clock."""
        return _TERMINAL_SECONDS if self._terminal else _PLAIN_SECONDS

    @property
    def seconds(self) -> int:
        """Seconds since the beginning."""
        return round(self._clock() - self._began)

    def heard(self, line: str) -> None:
        """Take note of a line of the command's output."""
        if found := _DOING.match(line):
            self._doing = f", {found[1]}"

    def tick(self) -> None:
        """Show the line again if it is time to."""
        if self._clock() - self._shown >= self.interval:
            self._shown = self._clock()
            self._write(f"{self.title}: {self.seconds} s{self._doing}")

    def tell(self, line: str, err: IO[str]) -> None:
        """Show a line of the command's standard error."""
        if self._terminal:
            self._out.write("\r\x1b[K")
            self._out.flush()
        err.write(line)
        err.flush()

    def end(self, status: int, log: Path) -> None:
        """Show how it ended."""
        last = "done" if status == 0 else f"failed with status {status}; what was printed is in {log}"
        self._write(f"{self.title}: {last} ({self.seconds} s)", last=True)

    def _write(self, text: str, last: bool = False) -> None:
        if self._terminal:
            text = f"\r\x1b[K{text if last else text[:_WIDTH]}"
        self._out.write(text + ("\n" if last or not self._terminal else ""))
        self._out.flush()


def run(progress: Progress, command: Sequence[str], log: Path, err: IO[str]) -> int:
    """Run `command`, append what it prints to `log`, and return its exit status."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    try:
        with log.open("a", encoding="utf-8", buffering=1) as kept:
            _follow(process, progress, kept, err)
    except KeyboardInterrupt:
        process.wait()  # the terminal told it as well
        return _INTERRUPTED
    return process.wait()


def _follow(process: subprocess.Popen[str], progress: Progress, kept: IO[str], err: IO[str]) -> None:
    """Pass on what the process prints until it closes both streams."""
    lines: queue.Queue[tuple[bool, str | None]] = queue.Queue()
    streams = [(process.stdout, False), (process.stderr, True)]
    for stream, is_error in streams:
        threading.Thread(target=_read, args=(stream, is_error, lines), daemon=True).start()
    while streams:
        try:
            is_error, line = lines.get(timeout=progress.interval)
        except queue.Empty:
            progress.tick()
            continue
        if line is None:
            streams.pop()  # which of them does not matter
            continue
        kept.write(line)
        if is_error:
            progress.tell(line, err)
        else:
            progress.heard(line)
        progress.tick()


def _read(stream: IO[str], is_error: bool, lines: queue.Queue[tuple[bool, str | None]]) -> None:
    for line in stream:
        lines.put((is_error, line))
    lines.put((is_error, None))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage that the arguments describe and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", type=Path, required=True, help="file that what the command prints is appended to")
    parser.add_argument("title", help="what the stage is called")
    parser.add_argument("command", nargs="+", help="after `--`: the command")
    args = parser.parse_args(argv)
    progress = Progress(args.title, sys.stdout)
    status = run(progress, args.command, args.log, sys.stderr)
    progress.end(status, args.log)
    return status


if __name__ == "__main__":
    sys.exit(main())
