"""Stray output of Python, libraries and child processes, turned into log records for logs that a machine reads."""

from __future__ import annotations

import json
import logging
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import IO, Any, TextIO

TRACEBACK = "Traceback (most recent call last)"
LOGGER = "core.stray"
"""Name of the logger of these records."""

Render = Callable[[logging.LogRecord], str]

logger = logging.getLogger(LOGGER)
_shown = warnings.showwarning


def catch() -> None:
    """Log warnings of Python, and exceptions that nobody handles, instead of printing them."""
    warnings.showwarning = _warned
    sys.excepthook = _raised
    threading.excepthook = _raised_in_thread
    sys.unraisablehook = _unraisable


def release() -> None:
    """Undo `catch`; what somebody else has put in place since is left alone."""
    if warnings.showwarning is _warned:
        warnings.showwarning = _shown
    if sys.excepthook is _raised:
        sys.excepthook = sys.__excepthook__
    if threading.excepthook is _raised_in_thread:
        threading.excepthook = threading.__excepthook__
    if sys.unraisablehook is _unraisable:
        sys.unraisablehook = sys.__unraisablehook__


class Relay(threading.Thread):
    """Passes on what a child process writes: records as they are, anything else as records of its own.

    A traceback becomes one record. The thread ends when everybody who can write to the pipe has closed it.

    Args:
        source: The reading end of the pipe.
        sink: Where lines go.
        render: Makes the line of a record.
        pid: Of the child.
    """

    def __init__(self, source: IO[bytes], sink: TextIO, render: Render, pid: int) -> None:
        super().__init__(name="core-relay", daemon=True)
        self._source, self._sink, self._render, self._pid = source, sink, render, pid

    def run(self) -> None:
        """Relay until the end of the pipe."""
        with self._source:
            for text, trace in pieces(line.decode("utf-8", "replace").rstrip("\r\n") for line in self._source):
                line = text if is_record(text) else self._render(self._record(text, trace))
                self._sink.write(line + "\n")  # at once: other threads write records there too
                self._sink.flush()

    def _record(self, text: str, trace: str) -> logging.LogRecord:
        level = logging.ERROR if trace else logging.WARNING
        record = logging.LogRecord(LOGGER, level, __file__, 0, text, None, None)
        record.exc_text, record.process = trace or None, self._pid
        return record


def is_record(line: str) -> bool:
    """Whether a line is a record already."""
    if not line.startswith("{"):
        return False
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and "time" in found and "message" in found


def pieces(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yield lines that are not empty, each with the traceback that it ends; that is handed over as a whole."""
    trace: list[str] = []
    for line in lines:
        if trace or line.startswith(TRACEBACK):
            trace.append(line)
            if len(trace) > 1 and line and not line[0].isspace():
                yield line, "\n".join(trace)
                trace = []
        elif line.strip():
            yield line, ""
    if trace:
        yield trace[-1].strip(), "\n".join(trace)


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if file is not None:
        _shown(message, category, filename, lineno, file, line)
    else:
        logger.warning("%s: %s (%s:%d)", category.__name__, message, filename, lineno)


def _raised(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    logger.critical("%s: %s", kind.__name__, error, exc_info=(kind, error, trace))


def _raised_in_thread(found: threading.ExceptHookArgs) -> None:
    if found.exc_value is not None and not issubclass(found.exc_type, SystemExit):
        name = found.thread.name if found.thread is not None else "?"
        trace = (found.exc_type, found.exc_value, found.exc_traceback)
        logger.error("thread %s: %s: %s", name, found.exc_type.__name__, found.exc_value, exc_info=trace)


def _unraisable(found: Any) -> None:
    trace = (found.exc_type, found.exc_value, found.exc_traceback)
    logger.error("%s %r", found.err_msg or "exception ignored in", found.object, exc_info=trace)
