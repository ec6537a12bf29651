"""A running engine as one event loop sees it: what it is sent, what it answers, and whether it lives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from core.api.errors import CoreError, EngineError
from core.engine.client import AsyncEngine
from core.engine.messages import Abort, Call, CallResult, Failed, FromEngine, Outputs, ToEngine

logger = logging.getLogger(__name__)


class EngineLink:
    """Connects a front end with its engine.

    Args:
        on_outputs: Takes what the engine produced.
        on_failure: Told once that the engine is gone.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        on_outputs: Callable[[Outputs], None],
        on_failure: Callable[[EngineError], None],
    ) -> None:
        self._engine, self._on_outputs, self._on_failure = engine, on_outputs, on_failure
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._numbers = count(1)
        self._receiver: asyncio.Task[None] | None = None
        self._failure: EngineError | None = None

    @property
    def healthy(self) -> bool:
        """Whether the engine lives and moves on."""
        return self._failure is None and self._engine.alive()

    def check(self) -> None:
        """Raises `EngineError` if the engine is gone."""
        if self._failure is not None:
            raise _again(self._failure)

    def listen(self) -> None:
        """Take what the engine sends from now on, its signs of life included. Harmless when repeated."""
        if self._receiver is None and self._failure is None:
            self._receiver = asyncio.get_running_loop().create_task(self._receive(), name="core-receive")

    def send(self, messages: Iterable[ToEngine]) -> None:
        """Send messages. Raises `EngineError`, and tells everybody, when the engine is gone."""
        self.listen()
        try:
            for message in messages:
                self._engine.send(message)
        except EngineError as error:
            self.fail(error)
            raise

    def abort(self, handles: list[int]) -> None:
        """Have the engine forget requests, if it is there."""
        if handles and self._failure is None:
            with contextlib.suppress(EngineError):
                self.send([Abort(handles)])

    async def call(self, method: str, *args: Any) -> Any:
        """Call a named engine method with plain data and return its value. Raises the engine's `CoreError`."""
        self.check()
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
        self._on_failure(error)
        for future in self._calls.values():
            if not future.done():
                future.set_exception(_again(error))

    async def close(self) -> None:
        """End what is open; the engine itself is left as it is. Harmless when repeated."""
        self.fail(EngineError("CORE-E150", "the engine was closed."))
        if self._receiver is not None:
            self._receiver.cancel()
            await asyncio.gather(self._receiver, return_exceptions=True)
            self._receiver = None

    async def _receive(self) -> None:
        try:
            while self._failure is None:
                self._dispatch(await self._engine.receive())
                await asyncio.sleep(0)  # a busy engine must not keep readers from their turn
        except CoreError as error:
            self.fail(_as_engine_error(error))
        except Exception as error:
            logger.exception("the front end failed")
            self.fail(_broken(error))
        except BaseException as error:  # a library in another language that broke off; silence would last forever
            if not isinstance(error, asyncio.CancelledError):
                self.fail(_broken(error))
            raise

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


def _broken(error: BaseException) -> EngineError:
    return EngineError("CORE-E151", f"the front end failed: {type(error).__name__}: {error}.")


def _as_engine_error(error: CoreError) -> EngineError:
    return error if isinstance(error, EngineError) else EngineError(error.code, error.message, hint=error.hint)


def _again(error: EngineError) -> EngineError:
    """Return a copy, as every raiser adds its own traceback."""
    return EngineError(error.code, error.message, hint=error.hint)
