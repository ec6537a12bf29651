"""What a reader of one request's outputs holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from core.api.errors import EngineError
from core.frontend.requests import RequestState
from core.frontend.results import RequestOutput


class OutputStream:
    """The outputs of one request, as an async iterator; `close` before its end aborts the request.

    Outputs are not queued: what arrives while nobody waits is merged into the next one.

    Args:
        forget: Told that nobody reads the request any more.
        delta: Yield what is new each time, instead of everything so far.
    """

    def __init__(self, request: RequestState, forget: Callable[[RequestState], None], *, delta: bool) -> None:
        self.request_id = request.request_id
        self._forget, self._request, self._delta = forget, request, delta
        self._fresh = False
        self._waiter: asyncio.Future[None] | None = None
        self._failure: EngineError | None = None
        self._ended = False

    def notify(self) -> None:
        """There is something to take."""
        self._fresh = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, error: EngineError) -> None:
        """The engine is gone; the next read raises."""
        self._failure = error
        self.notify()

    def __aiter__(self) -> OutputStream:
        return self

    async def __anext__(self) -> RequestOutput:
        if self._ended:
            raise StopAsyncIteration
        if not self._fresh:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._fresh = False
        if self._failure is not None:
            self._ended = True
            raise EngineError(self._failure.code, self._failure.message, hint=self._failure.hint)
        output = self._request.take(delta=self._delta)
        self._ended = output.finished
        return output

    def close(self) -> None:
        """Stop reading. The engine forgets the request if it still runs."""
        self._ended = True
        self._forget(self._request)
