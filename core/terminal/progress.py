"""Progress of what takes long: fetching a model, reading its weights, many requests."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from core import logs
from core.config.sizes import format_size

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID


_LEAST_PAUSE = 0.2
"""Seconds between two drawings of a bar that does not move by itself."""


class _Shown:
    """A bar on a terminal, otherwise a line (or record) at most every ten percent.

    `close` (or leaving the context) removes a bar that did not end.

    Args:
        steady: Whether the bar moves between two updates; without, it takes no time from what is being measured.
    """

    def __init__(self, what: str, stream: TextIO | None, *, steady: bool = True) -> None:
        self._what = what
        self._stream = stream or sys.stderr
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._tenth = -1
        self._started = time.perf_counter()
        self._steady = steady
        self._drawn = 0.0

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

    @property
    def _seconds(self) -> float:
        return max(time.perf_counter() - self._started, 1e-9)

    def _show(self, done: int, total: int, line: str, note: str = "") -> None:
        tenth, before = min(10, done * 10 // total), self._tenth
        self._tenth = max(tenth, before)
        if self._stream.isatty() and not logs.is_json():
            self._draw(done, total, note, ended=before == 10)
        elif tenth > before:
            fields = {"event": "progress", "what": self._what, "done": done, "total": total}
            logs.tell(line, fields, stream=self._stream)

    def _draw(self, done: int, total: int, note: str, *, ended: bool) -> None:
        if self._bar is None and not ended:
            self._bar = self._new_bar()
            self._task = self._bar.add_task(self._what, total=total, note=note)
            self._bar.start()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, note=note)
            now = time.perf_counter()
            if not self._steady and now - self._drawn > _LEAST_PAUSE:
                self._drawn = now
                self._bar.refresh()

    def _new_bar(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), *self._columns())
        # What is printed meanwhile stands above the bar, but only where standard output is that terminal, too.
        onto = sys.stdout.isatty()
        console = Console(file=self._stream)
        return Progress(*columns, console=console, transient=True, redirect_stdout=onto, auto_refresh=self._steady)

    def _columns(self) -> list[ProgressColumn]:
        """Return what stands behind the bar."""
        raise NotImplementedError


class WeightProgress(_Shown):
    """Progress in bytes; `update` may be called as often as wanted.

    Args:
        stream: Where to show it; None: standard error.
        what: What takes long.
    """

    def __init__(self, stream: TextIO | None = None, *, what: str = "loading weights") -> None:
        super().__init__(what, stream)

    def update(self, done: int, total: int) -> None:
        """Show that `done` of `total` bytes are loaded."""
        if total <= 0:
            return
        sizes = f"{format_size(done)} of {format_size(total)}, {format_size(done / self._seconds)}/s"
        self._show(done, total, f"{self._what}: {min(10, done * 10 // total) * 10} % ({sizes})")
        if done >= total:
            self.close()

    def _columns(self) -> list[ProgressColumn]:
        from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

        return [DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn()]


class RequestProgress(_Shown):
    """Progress of many requests.

    Args:
        total: How many there are.
        steady: As for every bar.
    """

    def __init__(self, total: int, stream: TextIO | None = None, *, steady: bool = True) -> None:
        super().__init__("requests", stream, steady=steady)
        self._total, self._tenth = total, 0
        self._done = self._failed = self._tokens = 0

    def step(self, *, failed: bool, tokens: int) -> None:
        """One request is done; it generated this many tokens."""
        self._done += 1
        self._failed += failed
        self._tokens += tokens
        lost = f", {self._failed} failed" if self._failed else ""
        speed = f", {self._tokens / self._seconds:.1f} tokens/s" if self._tokens else ""
        note = f"{lost}, {self._done / self._seconds:.2f} requests/s{speed}"
        self._show(self._done, self._total, f"{self._done} of {self._total} requests{note}", note)

    def __enter__(self) -> Self:
        self._show(0, self._total, "")
        return self

    def _columns(self) -> list[ProgressColumn]:
        from rich.progress import MofNCompleteColumn, TextColumn, TimeRemainingColumn

        return [MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[note]}")]


class CountProgress(_Shown):
    """Progress of things that are counted.

    Args:
        what: What is counted, in the plural.
        total: How many there are.
        steady: As for every bar.
    """

    def __init__(self, what: str, total: int, stream: TextIO | None = None, *, steady: bool = True) -> None:
        super().__init__(what, stream, steady=steady)
        self._total, self._done, self._tenth = total, 0, 0

    def __enter__(self) -> Self:
        if self._total > 0:
            self._show(0, self._total, "")
        return self

    def step(self, note: str = "") -> None:
        """One more is done; `note` says something about it."""
        self._done += 1
        if self._done <= self._total:
            line = f"{self._done} of {self._total} {self._what}{f': {note}' if note else ''}"
            self._show(self._done, self._total, line, note)

    def _columns(self) -> list[ProgressColumn]:
        from rich.progress import MofNCompleteColumn, TextColumn, TimeRemainingColumn

        return [MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[note]}", markup=False)]


@contextmanager
def counted(what: str, times: int) -> Iterator[Iterator[int]]:
    """Yield an iterator over 0, 1, ... that shows progress after each; nothing is drawn in between.

    Args:
        what: What is counted, in the plural.
    """

    def steps() -> Iterator[int]:
        for index in range(times):
            yield index
            progress.step()

    with CountProgress(what, times, steady=False) as progress:
        yield steps()
