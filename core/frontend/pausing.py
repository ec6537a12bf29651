"""A front end that holds its requests back: to change weights, to take a server out of rotation, to look around."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Any, get_args

from core.api.errors import EngineError, RequestError
from core.api.operator import PauseMode

_DRAIN_SECONDS = 0.01
"""How often a drain looks whether requests are left."""


class PauseGate:
    """Requests pass while it is open.

    Attributes:
        frozen: The engine itself stands still, with its requests in it.
    """

    def __init__(self) -> None:
        self.frozen = False
        self._closed = self._ends = False
        self._waiting: dict[asyncio.Future[bool], str] = {}

    @property
    def closed(self) -> bool:
        """Whether requests are held back."""
        return self._closed

    @property
    def waiting(self) -> list[str]:
        """Ids of the requests that are held back."""
        return list(dict.fromkeys(self._waiting.values()))

    def close(self) -> None:
        """Hold requests back from now on."""
        self._closed = True

    def open(self) -> None:
        """Let the requests that wait, and all later ones, pass."""
        self._closed = False
        for waiter in self._waiting:
            _give(waiter, True)

    async def passed(self, name: str) -> bool:
        """Return once the gate is open; False: the request was ended while it waited. Raises `RequestError`."""
        if not self._closed:
            return True
        if self._ends:
            raise _ending()
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = name
        try:
            return await waiter
        finally:
            del self._waiting[waiter]

    def end(self, name: str) -> None:
        """End the requests of that id that wait here."""
        for waiter, its in self._waiting.items():
            if its == name:
                _give(waiter, False)

    def refuse(self) -> None:
        """Refuse the requests that wait here, and all that would: 503."""
        self._ends = True
        for waiter in self._waiting:
            _give(waiter, _ending())


def aborted(message: str, *, code: str = "aborted") -> RequestError:
    """Return what is said of a request that an operator has ended and that has no answer to break off."""
    return RequestError(message, code=code, status=503)


def _ending() -> RequestError:
    return aborted("The server is shutting down while it is paused.", code="draining")


def _give(waiter: asyncio.Future[bool], outcome: bool | RequestError) -> None:
    if waiter.done():
        return
    if isinstance(outcome, RequestError):
        waiter.set_exception(outcome)
    else:
        waiter.set_result(outcome)


class Pausing:
    """Pause and resume, for a front end whose requests pass a gate before they are sent."""

    _gate: PauseGate

    @property
    @abstractmethod
    def running_ids(self) -> list[str]: ...

    @property
    @abstractmethod
    def in_flight(self) -> int: ...

    @abstractmethod
    async def abort(self, request_id: str) -> None: ...

    @abstractmethod
    async def call(self, method: str, *args: Any) -> Any: ...

    @abstractmethod
    def _check_alive(self) -> None: ...

    @property
    def paused(self) -> bool:
        """Whether new requests are held back."""
        return self._gate.closed

    async def pause_generation(self, mode: PauseMode = "abort", *, clear_cache: bool = True) -> None:
        """Hold new requests back, and return once the engine rests.

        Args:
            mode: What becomes of those in flight. `abort` ends them, `wait` lets them finish, `keep` stops the engine
                where it is: they go on with `resume_generation`.
            clear_cache: Drop the prefix cache, unless requests were kept.

        Raises:
            RequestError: There is no such mode.
            EngineError: The engine is gone.
        """
        if mode not in get_args(PauseMode):
            raise RequestError(f"mode must be one of {', '.join(get_args(PauseMode))}, got {mode!r:.40}", param="mode")
        self._check_alive()
        held = self._gate.closed
        self._gate.close()
        try:
            await self._freeze(mode == "keep")
        except EngineError:  # it died: whoever asked is told so, and nothing is held back
            if not held:
                self._gate.open()
            raise
        if mode == "keep":
            return
        if mode == "abort":
            await self._abort_running()
        await self.wait_for_requests_to_drain()
        if clear_cache and self.paused:
            await self.call("reset_prefix_cache")

    async def resume_generation(self) -> None:
        """Let requests pass again. Harmless when they do. Raises `EngineError`."""
        await self._freeze(False)
        self._gate.open()

    async def dismiss_held(self) -> None:
        """End what a pause holds back, because the server ends: nobody will resume it.

        Requests that wait are refused (503); those in an engine that stands still end as if aborted.
        """
        self._gate.refuse()
        if self._gate.frozen:
            await self._abort_running()

    async def _abort_running(self) -> None:
        for name in self.running_ids:
            await self.abort(name)

    async def wait_for_requests_to_drain(self) -> None:
        """Return once no request is in flight. Raises `EngineError` if the engine is gone."""
        while self.in_flight:
            await asyncio.sleep(_DRAIN_SECONDS)
            self._check_alive()

    async def _freeze(self, frozen: bool) -> None:
        if frozen != self._gate.frozen:
            await self.call("pause", frozen)
            self._gate.frozen = frozen
