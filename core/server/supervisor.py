"""From the first signal, or the engine's death, to the exit of the process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterator
from typing import Protocol

from core.api.errors import CoreError
from core.server.state import ServerState

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
POLL_SECONDS = 0.2
LAST_WORDS_SECONDS = 2.0


class Exits(Protocol):
    """The two flags of a uvicorn server."""

    should_exit: bool
    force_exit: bool


class Supervisor:
    """Decides when and how the server ends.

    Attributes:
        error: Why it had to end, if it did not end in peace.
        forced: The second signal, if one came.
    """

    def __init__(self, server: Exits, state: ServerState, on_draining: Callable[[], None] | None = None) -> None:
        self._server = server
        self._state = state
        self._on_draining = on_draining
        self._ending: asyncio.Task[None] | None = None
        self.error: CoreError | None = None
        self.forced: int | None = None
        state.lifecycle.drain = self.drain

    def signalled(self, number: int) -> None:
        """First signal: drain. Second: exit at once."""
        if self._state.lifecycle.draining:
            self.forced = number
            self._server.force_exit = self._server.should_exit = True
            self._state.lifecycle.stop()
        else:
            self.drain()

    def drain(self) -> None:
        """Refuse new generations, let those in flight finish within the time for it, then end the server."""
        self._state.lifecycle.refuse()
        self._ending = asyncio.create_task(self._drain())

    async def watch(self) -> None:
        """Wait for the engine to die for good, then end the server."""
        llm, hung = self._state.llm, False
        while not self._server.should_exit:
            await asyncio.sleep(POLL_SECONDS)
            if llm.failure is not None:
                await self._die(llm.failure)
                break
            if llm.healthy or llm.retry_after is not None:
                hung = False
            elif not hung:
                hung = True
                logger.error("the engine does not answer; /ready says so until it does")

    async def _drain(self) -> None:
        lifecycle = self._state.lifecycle
        seconds = self._state.options.server.drain_timeout
        logger.warning("draining: %d in flight, at most %g s; a second signal ends it", len(lifecycle.work), seconds)
        if self._on_draining is not None:
            self._on_draining()
        if self._state.llm.paused:
            await self._state.llm.dismiss_held()
        if not await lifecycle.idle(seconds):
            await self._stop()
        await lifecycle.dismiss(LAST_WORDS_SECONDS)
        self._server.should_exit = True

    async def _stop(self) -> None:
        self._state.lifecycle.stop()
        await self._state.lifecycle.idle(LAST_WORDS_SECONDS)

    async def _die(self, error: CoreError) -> None:
        """Let open streams say what happened, then end."""
        self.error = error
        self._state.lifecycle.draining = True
        if not await self._state.lifecycle.idle(LAST_WORDS_SECONDS):
            await self._stop()
        await self._state.lifecycle.dismiss(LAST_WORDS_SECONDS)
        self._server.should_exit = True


@contextlib.contextmanager
def signals_to(handler: Callable[[int], None]) -> Iterator[None]:
    """Send SIGTERM and SIGINT to `handler`, inside the event loop."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
