"""A running engine as one event loop sees it: what it is sent, what it answers, and whether it lives.

    connected --(the engine dies)--> starting --(a new one is ready)--> connected
        |                                |
        |  nobody can start it again     |  it may not be started so often
        +------------> failed <----------+

Requests are not sent while an engine starts: it is told of everything in flight when it is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from core.api.errors import CoreError, EngineError
from core.engine.client import AsyncEngine
from core.engine.messages import Abort, Add, Call, CallResult, Failed, FromEngine, Outputs, ToEngine
from core.frontend.restarts import Revival

logger = logging.getLogger(__name__)


class EngineLink:
    """Connects a front end with its engine.

    Args:
        on_outputs: Takes what the engine produced.
        on_failure: Told once that the engine is gone for good.
        revival: How to start it again; None: nobody can.

    Attributes:
        engine: The one that is connected, or was.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        on_outputs: Callable[[Outputs], None],
        on_failure: Callable[[EngineError], None],
        revival: Revival | None = None,
    ) -> None:
        self.engine, self._revival = engine, revival
        self._on_outputs, self._on_failure = on_outputs, on_failure
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._numbers = count(1)
        self._receiver: asyncio.Task[None] | None = None
        self._failure: EngineError | None = None
        self._lost: float | None = None  # since when an engine is being started

    @property
    def healthy(self) -> bool:
        """Whether the engine lives and moves on."""
        return self._failure is None and self._lost is None and self.engine.alive()

    @property
    def failure(self) -> EngineError | None:
        """Why the engine is gone for good."""
        return self._failure

    @property
    def retry_after(self) -> int | None:
        """Seconds after which the engine that is being started should be ready, at least 1; None if none is."""
        if self._lost is None:
            return None
        usual = sum(seconds for _, seconds in self.engine.ready.timeline)
        return max(1, math.ceil(usual - (time.monotonic() - self._lost)))

    @property
    def restarts(self) -> int:
        """How often the engine was started again."""
        return 0 if self._revival is None else self._revival.budget.used

    def check(self) -> None:
        """Raises `EngineError` if the engine is gone for good."""
        if self._failure is not None:
            raise _again(self._failure)

    def listen(self) -> None:
        """Take what the engine sends from now on, its signs of life included. Harmless when repeated."""
        if self._receiver is None and self._failure is None:
            self._receiver = asyncio.get_running_loop().create_task(self._receive(), name="core-receive")

    def send(self, messages: Iterable[ToEngine]) -> None:
        """Send messages. Raises `EngineError`, and tells everybody, when the engine is gone for good."""
        self.check()
        self.listen()
        if self._lost is not None:
            return  # whoever asked is in flight, or has gone: the next engine is told
        try:
            for message in messages:
                self.engine.send(message)
        except EngineError as error:
            if self._revival is None:
                self.fail(error)
                raise
            # Whoever receives finds it out as well, and has it started again.

    def abort(self, handles: list[int]) -> None:
        """Have the engine forget requests, if it is there."""
        if handles and self._failure is None:
            with contextlib.suppress(EngineError):
                self.send([Abort(handles)])

    async def call(self, method: str, *args: Any) -> Any:
        """Call a named engine method with plain data and return its value.

        Raises:
            CoreError: The engine's own; CORE-E181, it died meanwhile, or is being started again.
        """
        self.check()
        if self._lost is not None:
            raise _interrupted()
        number = next(self._numbers)
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        try:
            self.send([Call(number, method, list(args))])
            return await future
        finally:
            self._calls.pop(number, None)

    def fail(self, error: EngineError) -> None:
        """The engine is gone: every open request and call learns it, once."""
        if self._failure is not None:
            return
        self._failure = error
        self._lost = None
        self._on_failure(error)
        self._fail_calls(lambda: _again(error))

    async def close(self) -> None:
        """End what is open; the engine itself is left as it is. Harmless when repeated."""
        self.fail(EngineError("CORE-E150", "the engine was closed."))
        if self._receiver is not None:
            self._receiver.cancel()
            await asyncio.gather(self._receiver, return_exceptions=True)
            self._receiver = None

    async def _receive(self) -> None:
        try:
            while True:
                cause = await self._revive(await self._listen())
                if cause is not None:
                    self.fail(cause)
                    return
        except Exception as error:
            logger.exception("the front end failed")
            self.fail(_broken(error))
        except BaseException as error:  # a library in another language that broke off; silence would last forever
            if not isinstance(error, asyncio.CancelledError):
                self.fail(_broken(error))
            raise

    async def _listen(self) -> EngineError:
        """Take what the engine sends; return why it is gone."""
        try:
            while True:
                self._dispatch(await self.engine.receive())
                await asyncio.sleep(0)  # a busy engine must not keep readers from their turn
        except CoreError as error:
            return _as_engine_error(error)

    async def _revive(self, error: EngineError) -> EngineError | None:
        """Start an engine that died of `error` again, as often as that is allowed; return why it cannot be."""
        revival = self._revival
        if revival is None:
            return error
        while revival.budget.take():
            if self._lost is None:
                self._lost = time.monotonic()
                self._fail_calls(_interrupted)
                revival.on_lost(error)
            logger.error("%s %s It is started again (restart %d).", error.code, error.message, revival.budget.used)
            try:
                await self.engine.close()
                engine = await revival.start()
            except Exception as failed:
                error = _as_engine_error(failed) if isinstance(failed, CoreError) else _unstartable(failed)
                continue
            self._connect(engine, revival)
            return None
        logger.error("the engine is not started again: it was %d times within ten minutes", revival.budget.most)
        return error

    def _connect(self, engine: AsyncEngine, revival: Revival) -> None:
        seconds = 0.0 if self._lost is None else time.monotonic() - self._lost
        self.engine, self._lost = engine, None
        messages = list(revival.resume())
        sequences = sum(isinstance(message, Add) for message in messages)
        logger.warning("the engine is ready again after %.1f s; %d sequences go on", seconds, sequences)
        self.send(messages)

    def _fail_calls(self, error: Callable[[], EngineError]) -> None:
        for future in self._calls.values():
            if not future.done():
                future.set_exception(error())

    def _dispatch(self, message: FromEngine) -> None:
        if isinstance(message, Outputs):
            self._on_outputs(message)
        elif isinstance(message, CallResult):
            future = self._calls.get(message.number)
            if future is not None and not future.done():
                _settle(future, message)
        elif isinstance(message, Failed):
            raise CoreError.from_dict(message.error)


def _settle(future: asyncio.Future[Any], result: CallResult) -> None:
    """Give a call its result."""
    if result.error is None:
        future.set_result(result.value)
    else:
        future.set_exception(CoreError.from_dict(result.error))


def _interrupted() -> EngineError:
    text = "the engine died and is started again; what it was called for was not, or not wholly, done."
    return EngineError("CORE-E181", text, hint="Call again once it is ready.")


def _unstartable(error: Exception) -> EngineError:
    return EngineError("CORE-E183", f"the engine cannot be started again: {type(error).__name__}: {error}.")


def _broken(error: BaseException) -> EngineError:
    return EngineError("CORE-E151", f"the front end failed: {type(error).__name__}: {error}.")


def _as_engine_error(error: CoreError) -> EngineError:
    return error if isinstance(error, EngineError) else EngineError(error.code, error.message, hint=error.hint)


def _again(error: EngineError) -> EngineError:
    """Return a copy, as every raiser adds its own traceback."""
    return EngineError(error.code, error.message, hint=error.hint)
