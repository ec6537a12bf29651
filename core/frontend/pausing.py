"""A front end that holds its requests back: to change weights, to take a server out of rotation, to look around."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Any, Literal, get_args

from core.api.errors import RequestError

PauseMode = Literal["abort", "wait", "keep"]

_DRAIN_SECONDS = 0.01
"""How often a drain looks whether requests are left."""


class Gate:
    """Requests pass while it is open.

    Attributes:
        frozen: The engine itself stands still, with its requests in it.
    """

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.frozen = False

    @property
    def closed(self) -> bool:
        """Whether requests are held back."""
        return not self._open.is_set()

    def close(self) -> None:
        """Hold requests back from now on."""
        self._open.clear()

    def open(self) -> None:
        """Let the requests that wait, and all later ones, pass."""
        self._open.set()

    async def passed(self) -> None:
        """Return once the gate is open."""
        await self._open.wait()


class Pausing:
    """Pause and resume, for a front end whose requests pass a gate before they are sent."""

    _gate: Gate

    @property
    @abstractmethod
    def request_ids(self) -> list[str]: ...

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
        self._gate.close()
        await self._freeze(mode == "keep")
        if mode == "keep":
            return
        if mode == "abort":
            for name in self.request_ids:
                await self.abort(name)
        await self.wait_for_requests_to_drain()
        if clear_cache and self.paused:
            await self.call("reset_prefix_cache")

    async def resume_generation(self) -> None:
        """Let requests pass again. Harmless when they do. Raises `EngineError`."""
        await self._freeze(False)
        self._gate.open()

    async def wait_for_requests_to_drain(self) -> None:
        """Return once no request is in flight. Raises `EngineError` if the engine is gone."""
        while self.in_flight:
            await asyncio.sleep(_DRAIN_SECONDS)
            self._check_alive()

    async def _freeze(self, frozen: bool) -> None:
        if frozen != self._gate.frozen:
            await self.call("pause", frozen)
            self._gate.frozen = frozen
