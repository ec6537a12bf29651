"""Signals that end a process like an error, so that what it has opened is closed; and none that shows a traceback."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from traceback import walk_stack
from types import FrameType, TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

SIGNALLED = 128
"""Plus the signal's number: status of a process that a signal ended."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals by which somebody asks a process to end."""

_AGAIN_SECONDS = 0.02


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


@contextmanager
def held_back(*signals: signal.Signals) -> Iterator[None]:
    """Hold signals back: what is started meanwhile is born with them blocked, and what came is delivered afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def put_off(*signals: signal.Signals) -> Iterator[None]:
    """Let the first of these signals that comes in the block take effect after it, whichever thread is given it.

    Unlike `held_back`, which asks the system, it also holds where other threads run. Outside the main thread, where
    no signal takes effect, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    known = {number: signal.getsignal(number) for number in signals}
    before = {number: handler for number, handler in known.items() if handler not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for first in came[:1]:
            signal.raise_signal(first)


@contextmanager
def closed_whole(runner: asyncio.Runner) -> Iterator[asyncio.Runner]:
    """Close a runner after the block, and put signals off meanwhile: one would leave tasks of the loop's own behind."""
    try:
        yield runner
    finally:
        with put_off(*ENDING):
            runner.close()


def run_ended_by(runner: asyncio.Runner, work: Coroutine[Any, Any, T], *signals: signal.Signals) -> T:
    """Run a coroutine that these signals cancel, as Ctrl-C does; raise `SignalExit` when it has cleaned up.

    A handler that raised would do so wherever the event loop is, and leave tasks that nobody asks how they ended.
    """
    came: list[int] = []

    async def watched() -> T | None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def end(number: int) -> None:
            came.append(number)
            if task is not None:
                task.cancel()

        known = {number: signal.getsignal(number) for number in signals}
        before = {number: handler for number, handler in known.items() if handler is not signal.SIG_IGN}
        for number in before:
            loop.add_signal_handler(number, end, number)
        try:
            return await work
        except asyncio.CancelledError:
            if not came:
                raise
            return None
        finally:
            with held_back(*signals):
                for number, handler in before.items():
                    loop.remove_signal_handler(number)
                    signal.signal(number, handler)

    found = runner.run(watched())
    if came:
        raise SignalExit(SIGNALLED + came[0])
    return found  # type: ignore[return-value]  # None stands only for a signal


def _send_after(hook: FrameType, number: int) -> None:
    """Send a signal when the main thread has left the interpreter's hook, where what it raises would be shown."""
    main, inside = threading.main_thread().ident or 0, True
    while inside:
        time.sleep(_AGAIN_SECONDS)
        inside = any(frame is hook for frame, _ in walk_stack(sys._current_frames().get(main)))
    os.kill(os.getpid(), number)


def quietly(run: Callable[[], int]) -> int:
    """Run a whole process's work and return its status; no signal at any moment makes it show a traceback.

    What a signal raises ends the work like an error. Where nobody can catch it (a finalizer, a callback of a library),
    the signal is sent again a moment later. Once the work is done, signals do what they do by default: they end the
    process at once.
    """
    sys.excepthook = _silent_hook(sys.excepthook)
    unraisable = sys.unraisablehook

    def again(lost: sys.UnraisableHookArgs) -> None:
        number = _number_of(lost.exc_value)
        if number is None:
            unraisable(lost)
        elif not sys.is_finalizing():
            threading.Thread(target=_send_after, args=(sys._getframe(), number)).start()

    sys.unraisablehook = again
    logging.getLogger("asyncio").addFilter(_is_no_signal)
    try:
        return run()
    except KeyboardInterrupt:
        return SIGNALLED + signal.SIGINT
    finally:
        _by_default()


def _by_default() -> None:
    """Give signals their default meaning again, whatever comes meanwhile."""
    for number in ENDING:
        while signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN):
            with suppress(KeyboardInterrupt, SignalExit):
                signal.signal(number, signal.SIG_DFL)


def _number_of(error: BaseException | None) -> int | None:
    """Return the signal that raised an error, if one did."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    if isinstance(error, SignalExit) and isinstance(error.code, int):
        return error.code - SIGNALLED
    return None


def _silent_hook(
    otherwise: Callable[[type[BaseException], BaseException, TracebackType | None], Any],
) -> Callable[[type[BaseException], BaseException, TracebackType | None], None]:
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if _number_of(error) is None:
            otherwise(kind, error, trace)

    return hook


def _is_no_signal(record: logging.LogRecord) -> bool:
    """Whether a record of asyncio's log tells of something else than a task that a signal ended."""
    return not record.exc_info or _number_of(record.exc_info[1]) is None
