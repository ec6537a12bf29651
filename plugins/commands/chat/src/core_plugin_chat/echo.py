"""The terminal while something is drawn on it: no echo, and back to normal whenever somebody else has it."""

from __future__ import annotations

import os
import signal
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from core.api import Signals

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FLAGS = 3
"""Index of the local flags in what `tcgetattr` returns."""


@contextmanager
def echo_off(
    signals: Signals, stream: TextIO, *, pause: Callable[[], None], resume: Callable[[], None]
) -> Iterator[None]:
    """Turn off the echo of the terminal that `stream` writes to; the echo of a key (`^C`) would move what is drawn.

    Echo is back after the block, however it ends: signals that end a process end it like an error. It is back
    while the process is suspended, too. What is typed meanwhile waits for who reads next. Without a terminal, and in
    any thread but the main one, nothing changes.

    Args:
        signals: How signals are heeded.
        stream: Where the block draws.
        pause: Called before the process is suspended (Ctrl-Z); takes away what is only drawn for now.
        resume: Called when it goes on.
    """
    if not stream.isatty() or threading.current_thread() is not threading.main_thread():
        yield
        return
    echo = _Echo(stream.fileno())
    suspension = _Suspension(echo, pause, resume)
    heeded = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    stops, goes_on = _handled(signal.SIGTSTP, suspension.handle), _handled(signal.SIGCONT, echo.turn_off_again)
    with signals.ended_by(*heeded), stops, goes_on:
        try:
            echo.turn_off()
            yield
        finally:
            echo.restore()


class _Echo:
    """The echo of one terminal. A terminal that another job has in its foreground is left alone."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._off = False

    def turn_off(self) -> None:
        """Turn echo off, unless it is."""
        if self._is_ours():
            flags = termios.tcgetattr(self._fd)
            if flags[_FLAGS] & termios.ECHO:
                self._off = True
                flags[_FLAGS] &= ~termios.ECHO
                termios.tcsetattr(self._fd, termios.TCSANOW, flags)

    def turn_off_again(self, number: int, frame: object) -> None:
        """Handle the signal that says that the process goes on, perhaps in the foreground now."""
        self.turn_off()

    def restore(self) -> None:
        """Undo `turn_off`, and nothing else that became of the terminal meanwhile."""
        if self._off and self._is_ours():
            self._off = False
            flags = termios.tcgetattr(self._fd)
            flags[_FLAGS] |= termios.ECHO
            termios.tcsetattr(self._fd, termios.TCSANOW, flags)

    def _is_ours(self) -> bool:
        # Who sets a terminal from the background is stopped by it.
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:  # it hung up, or controls another session
            return False


class _Suspension:
    """Suspends the process as Ctrl-Z does, with the terminal as it was before."""

    def __init__(self, echo: _Echo, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._echo, self._pause, self._resume = echo, pause, resume
        self._asked = self._busy = False

    def handle(self, number: int, frame: object) -> None:
        """Handle the signal. One that comes before the last one is dealt with is dealt with after it."""
        self._asked = True
        if self._busy:
            return
        self._busy = True
        try:
            while self._asked:
                self._asked = False
                self._suspend(number)
        finally:
            self._busy = False

    def _suspend(self, number: int) -> None:
        self._pause()
        self._echo.restore()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)  # returns when the process goes on
        signal.signal(number, self.handle)
        self._echo.turn_off()
        self._resume()


@contextmanager
def _handled(number: signal.Signals, handler: Callable[[int, object], None]) -> Iterator[None]:
    """Handle a signal in the block, unless the process ignores it."""
    before = signal.getsignal(number)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
