"""Phases of the start, reported in the log: `core serve --log-level debug` shows them as they end.

Every process of a server reports its own. `core bench startup --profile` puts them together: a line holds the phase's
name and length, the record its process and end.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger("core.phases")

WAITING = "wait for "
"""Phases whose names begin so are spent waiting for the other process."""

_LINE = re.compile(r"phase '(?P<name>[^']+)' took (?P<seconds>\d+\.\d+) s, ended (?P<ago>\d+\.\d+) s ago")


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Report how long the block takes; nothing is reported if it raises."""
    began = time.perf_counter()
    yield
    report(name, time.perf_counter() - began)


def report(name: str, seconds: float, *, ago: float = 0.0) -> None:
    """Report a phase that ended `ago` seconds before now."""
    logger.debug("phase '%s' took %.4f s, ended %.4f s ago", name, seconds, ago)


def report_birth(name: str, *, ago: float = 0.0) -> None:
    """Report the phase from the start of this process until `ago` seconds before now: interpreter and imports."""
    age = _age() if logger.isEnabledFor(logging.DEBUG) else None
    if age is not None:
        report(name, max(0.0, age - ago), ago=ago)


def _age() -> float | None:
    """Return the seconds since this process was started, to a hundredth; None where the system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        return None


def parse(message: str) -> tuple[str, float, float] | None:
    """Return name, seconds, and how long ago it ended, of a reported phase; None for any other message."""
    found = _LINE.fullmatch(message)
    return (found["name"], float(found["seconds"]), float(found["ago"])) if found else None
