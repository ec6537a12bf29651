"""Logging set-up: one line per record, text or JSON, on standard error, and what commands print beside."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import types
from collections import deque
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import IO, Any, Literal, TextIO

from core import stray
from core.api.operator import RECENT_LINES

LEVELS = ("debug", "info", "warning", "error", "critical")
FORMATS = ("text", "json")
RECENT_CHARS = 2000
"""How much a process remembers of each record."""

FIELDS = "core_fields"
"""Key of `extra` under which a call of a logger gives further fields of its record, as plain data; text omits them."""

_COLOURS: Mapping[int, str] = types.MappingProxyType(
    {logging.DEBUG: "\x1b[2m", logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[1;31m"}
)
_RESET = "\x1b[0m"
# A message may quote a client: line breaks and escape sequences must not forge lines or drive a terminal.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) != "\t"}
_CONTROL.update({ord("\n"): "\\n", ord("\r"): "\\r"})


class TextFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 INFO engine core.engine.loop: message`."""

    def __init__(self, process: str, *, colour: bool) -> None:
        super().__init__()
        self._process = process
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by the traceback if the record has one."""
        level = f"{record.levelname:<7}"
        if self._colour and record.levelno in _COLOURS:
            level = f"{_COLOURS[record.levelno]}{level}{_RESET}"
        message = record.getMessage().translate(_CONTROL)
        return f"{_time(record)} {level} {self._process} {record.name}: {message}{self._trace(record)}"

    def _trace(self, record: logging.LogRecord) -> str:
        return f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (RFC 3339), level, process, pid, logger, message, and what belongs to the record.

    That are its own fields (`FIELDS`), and `exception` if there is one.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the object as one line."""
        own: Mapping[str, Any] = getattr(record, FIELDS, {})
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).astimezone().isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": self._process,
            "pid": record.process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in own.items() if name not in fields}
        if record.exc_info or record.exc_text:
            fields["exception"] = self.formatException(record.exc_info) if record.exc_info else record.exc_text
        return json.dumps(fields, ensure_ascii=False, default=str)


class CoreHandler(logging.StreamHandler[TextIO]):
    """The handler that `setup` installs, so that a second call finds and replaces it; it remembers its last records.

    Attributes:
        recent: Them as plain data, the newest last (see `recent`).
    """

    def __init__(self, stream: TextIO, process: str) -> None:
        super().__init__(stream)
        self._process = process
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT_LINES)

    def format(self, record: logging.LogRecord) -> str:
        """Remember the record, and return its line."""
        text = record.getMessage()
        if record.exc_info:
            text += f"\n{logging.Formatter().formatException(record.exc_info)}"
        self.recent.append(
            {
                "time": record.created,
                "level": record.levelname.lower(),
                "process": self._process,
                "logger": record.name,
                "message": text[:RECENT_CHARS],
            }
        )
        return super().format(record)


def setup(
    level: str = "info",
    format: Literal["text", "json"] | str = "text",
    *,
    process: str = "core",
    stream: TextIO | None = None,
) -> None:
    """Send the records of the whole process to `stream` (standard error), in one format.

    Args:
        level: One of `LEVELS`; other libraries stay at `warning` unless it is `debug`.
        format: `text` or `json`.
        process: Name of this process in every line: `core`, `api`, `engine`, `worker`.

    Raises:
        ValueError: `level` or `format` is not known.
    """
    if level.lower() not in LEVELS or format not in FORMATS:
        raise ValueError(
            f"log level {level!r} / format {format!r}; allowed: {', '.join(LEVELS)} / {', '.join(FORMATS)}"
        )
    handler = CoreHandler(stream or sys.stderr, process)
    handler.setFormatter(
        JsonFormatter(process) if format == "json" else TextFormatter(process, colour=use_colour(handler.stream))
    )
    root = logging.getLogger()
    handler.recent.extend(recent())
    root.handlers = [old for old in root.handlers if not isinstance(old, CoreHandler)] + [handler]
    root.setLevel(logging.DEBUG if level.lower() == "debug" else logging.WARNING)
    for name in ("core", "uvicorn"):
        logging.getLogger(name).setLevel(level.upper())
    if format == "json":
        stray.catch()
    else:
        stray.release()


def tell(
    text: str,
    fields: Mapping[str, Any],
    *,
    message: str | None = None,
    stream: TextIO | None = None,
    level: int = logging.INFO,
) -> None:
    """Print what a command has to say whatever the log level is; where logs are JSON, as a record.

    Args:
        text: What is printed, one line or several.
        fields: Of the record, as plain data.
        message: Of the record; None: the text.
        stream: None: standard output.
        level: Of the record.
    """
    handler = _handler()
    if handler is not None and isinstance(handler.formatter, JsonFormatter):
        record = logging.LogRecord("core", level, __file__, 0, text if message is None else message, None, None)
        setattr(record, FIELDS, fields)
        text = handler.formatter.format(record)
    out = stream or sys.stdout
    out.write(text + "\n")  # at once: other threads may write there too
    out.flush()


def relay(source: IO[bytes], process: str, pid: int) -> stray.Relay:
    """Pass on what a child process writes, as records, from a thread; the child logs as JSON (`is_json`).

    Args:
        source: Its standard output and error.
        process, pid: Its name in the log, and its id.
    """
    handler = _handler()
    sink = sys.stderr if handler is None else handler.stream
    relayed = stray.Relay(source, sink, JsonFormatter(process).format, pid)
    relayed.start()
    return relayed


def is_json() -> bool:
    """Whether `setup` put JSON in force."""
    return in_force()[1] == "json"


def in_force() -> tuple[str, str]:
    """Return the level and format that `setup` put in force, so that a child process can do the same."""
    handler = _handler()
    form = "json" if handler is not None and isinstance(handler.formatter, JsonFormatter) else "text"
    level = logging.getLevelName(logging.getLogger("core").getEffectiveLevel()).lower()
    return level if level in LEVELS else "warning", form


def recent(count: int = RECENT_LINES) -> list[dict[str, Any]]:
    """Return this process's last log records, the oldest first; nothing where `setup` was not called.

    Each has `time` (seconds since 1970), `level`, `process`, `logger` and `message`, with a traceback if there is one.
    """
    handler = _handler()
    if handler is None:
        return []
    with handler.lock or nullcontext():  # which is held while a record is written
        return list(handler.recent)[-count:]


def use_colour(stream: TextIO) -> bool:
    """Whether `stream` is a terminal and the user has not asked for plain text (`NO_COLOR`)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _handler() -> CoreHandler | None:
    return next((handler for handler in logging.getLogger().handlers if isinstance(handler, CoreHandler)), None)


def _time(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created)) + f".{int(record.msecs):03d}"
