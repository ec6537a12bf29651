"""Progress of what takes long at a start: fetching a model, reading its weights."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from core.config.sizes import format_size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class WeightProgress:
    """A bar on a terminal, otherwise a plain line at most every ten percent.

    `update` may be called as often as wanted; `close` (or leaving the context) removes a bar that did not end.

    Args:
        stream: Where to show it; None: standard error.
        what: What takes long.
    """

    def __init__(self, stream: TextIO | None = None, *, what: str = "loading weights") -> None:
        self._what = what
        self._stream = stream or sys.stderr
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._tenth = -1
        self._started = time.perf_counter()

    def update(self, done: int, total: int) -> None:
        """Show that `done` of `total` bytes are loaded."""
        if total <= 0:
            return
        if self._stream.isatty():
            self._draw(done, total)
        else:
            self._tell(done, total)
        if done >= total:
            self.close()

    def close(self) -> None:
        """Stop drawing; safe to call twice."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _draw(self, done: int, total: int) -> None:
        if self._bar is None and self._tenth < 10:
            self._bar = _bar(self._stream)
            self._task = self._bar.add_task(self._what, total=total)
            self._bar.start()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done)
        self._tenth = min(10, done * 10 // total)

    def _tell(self, done: int, total: int) -> None:
        tenth = min(10, done * 10 // total)
        if tenth > self._tenth:
            self._tenth = tenth
            rate = format_size(done / max(time.perf_counter() - self._started, 1e-9))
            print(
                f"{self._what}: {tenth * 10} % ({format_size(done)} of {format_size(total)}, {rate}/s)",
                file=self._stream,
                flush=True,
            )


def _bar(stream: TextIO) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(file=stream),
        transient=True,
    )
