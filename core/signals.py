"""Signals that end a process like an error, so that what it has opened is closed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALLED = 128
"""Plus the signal's number: status of a process that a signal ended."""


class SignalExit(SystemExit):
    """Somebody wants the process to end. Who guards against plugins that exit lets it pass."""


@contextmanager
def ended_by(*signals: signal.Signals) -> Iterator[None]:
    """Let these signals end the block with `SignalExit`. For the main thread."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SignalExit(SIGNALLED + number)

    before = {number: signal.signal(number, end) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
