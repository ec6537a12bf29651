"""The outputs of one request, as its reader holds them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from core.api.errors import EngineError
from core.frontend.requests import RequestState
from core.frontend.results import RequestOutput

Take = Callable[[RequestOutput], bool]
"""Takes an output in the turn in which it comes; False: no more for now."""


class OutputFeed(Protocol):
    """The outputs of one request: given as they come (`feed`), or as an async iterator."""

    def __aiter__(self) -> OutputFeed: ...

    async def __anext__(self) -> RequestOutput: ...

    async def feed(self, take: Take) -> bool:
        """Give each output to `take` as it comes, until it returns False or has been given the last one.

        Returns:
            Whether there may be more to come; what comes until the next call is kept.

        Raises:
            RequestError: The request cannot be served, which only its outputs have shown.
            EngineError: The engine is gone.
            Exception: What `take` raises.
        """
        ...

    async def aclose(self) -> None:
        """Stop reading; a request that has not ended is aborted. Harmless when repeated."""
        ...


class IteratedFeed:
    """The outputs of an async generator as an `OutputFeed`."""

    __slots__ = ("_outputs",)

    def __init__(self, outputs: AsyncGenerator[RequestOutput, None]) -> None:
        self._outputs = outputs

    def __aiter__(self) -> IteratedFeed:
        return self

    async def __anext__(self) -> RequestOutput:
        return await anext(self._outputs)

    async def feed(self, take: Take) -> bool:
        """Give each output to `take` until it returns False; see `OutputFeed`."""
        async for output in self._outputs:
            if not take(output):
                return True
        return False

    async def aclose(self) -> None:
        """Close the generator."""
        await self._outputs.aclose()


class OutputStream:
    """The `OutputFeed` of a request that the engine has; `aclose` before its end aborts the request.

    Outputs are not queued: what arrives while nobody waits is merged into the next one.

    Args:
        forget: Told that nobody reads the request any more.
        delta: Yield what is new each time, instead of everything so far.
    """

    __slots__ = (
        "_delta",
        "_ended",
        "_failure",
        "_forget",
        "_fresh",
        "_request",
        "_take",
        "_waiter",
        "request_id",
    )

    def __init__(self, request: RequestState, forget: Callable[[RequestState], None], *, delta: bool) -> None:
        self.request_id = request.request_id
        self._forget, self._request, self._delta = forget, request, delta
        self._fresh = False
        self._take: Take | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._failure: EngineError | None = None
        self._ended = False

    def notify(self) -> None:
        """There is something to take."""
        self._fresh = True
        if self._waiter is None or self._waiter.done():
            return
        if self._take is None:
            self._waiter.set_result(None)
        else:
            self._give(self._take, self._waiter)

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
            await self._news()
        return self._output()

    async def feed(self, take: Take) -> bool:
        """Give each output to `take` in the turn in which it comes: no task is woken for it.

        Returns once `take` has returned False, or has been given the last output; what comes until the next call is
        merged.

        Returns:
            Whether there is more to come.

        Raises:
            EngineError: The engine is gone.
            Exception: What `take` raises.
        """
        if self._fresh and not self._ended and not take(self._output()):
            return not self._ended
        if not self._ended:
            self._take = take
            try:
                await self._news()
            finally:
                self._take = None
        return not self._ended

    async def aclose(self) -> None:
        """Stop reading. The engine forgets the request if it still runs."""
        self._ended = True
        self._forget(self._request)

    async def _news(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _give(self, take: Take, waiter: asyncio.Future[None]) -> None:
        try:
            more = take(self._output())
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # this is the engine's turn: whatever goes wrong is its reader's affair alone
            waiter.set_exception(_carried(error))
        else:
            if self._ended or not more:
                waiter.set_result(None)

    def _output(self) -> RequestOutput:
        self._fresh = False
        if self._failure is not None:
            self._ended = True
            raise EngineError(self._failure.code, self._failure.message, hint=self._failure.hint)
        output = self._request.take(delta=self._delta)
        self._ended = output.finished
        return output


def _carried(error: BaseException) -> Exception:
    """Return what a task is told of an error that a future cannot bring it, or that would look like its own end."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    told = RuntimeError(f"{type(error).__name__}: {error}")
    told.__cause__ = error
    return told
