"""Progress of many requests."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class RequestProgress:
    """A bar on a terminal, otherwise a plain line at most every ten percent.

    Args:
        total: How many requests there are.
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total = total
        self._stream = stream or sys.stderr
        self._done = self._failed = self._tokens = 0
        self._tenth = 0
        self._started = time.perf_counter()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def step(self, *, failed: bool, tokens: int) -> None:
        """One request is done; it generated this many tokens."""
        self._done += 1
        self._failed += failed
        self._tokens += tokens
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done, note=self._note())
        elif (tenth := self._done * 10 // self._total) > self._tenth:
            self._tenth = tenth
            print(f"{self._done} of {self._total} requests{self._note()}", file=self._stream, flush=True)

    def __enter__(self) -> Self:
        if self._stream.isatty():
            self._bar = _bar(self._stream)
            self._task = self._bar.add_task("requests", total=self._total, note="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _note(self) -> str:
        seconds = max(time.perf_counter() - self._started, 1e-9)
        failed = f", {self._failed} failed" if self._failed else ""
        tokens = f", {self._tokens / seconds:.1f} tokens/s" if self._tokens else ""
        return f"{failed}, {self._done / seconds:.2f} requests/s{tokens}"


def _bar(stream: TextIO) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(file=stream),
    )
