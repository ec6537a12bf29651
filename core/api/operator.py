"""Operators: what whoever runs a server sees of it and does to it, for routes of the scope `admin`. Provisional."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

PauseMode = Literal["abort", "wait", "keep"]
"""Fate of requests in flight during a pause: they are aborted, they finish, or they are frozen and go on later."""

RECENT_LINES = 1000
"""How many of its log's records each process remembers."""


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """How the KV cache of the running engine was made.

    Attributes:
        block_size: Tokens of a block.
        dtype: Of keys and values.
        prefix_caching: Whether prompts that begin alike share blocks.
        memory_fraction: Of the device's memory, what the engine may use.
    """

    block_size: int
    dtype: str
    prefix_caching: bool
    memory_fraction: float


class Operator(Protocol):
    """The running server, as whoever runs it sees it. What clients may not see or do belongs into the scope `admin`.

    An endpoint whose client goes is cancelled, and what it awaits here with it: what must not stay half done runs in a
    task of its own (`asyncio.shield`).

    Attributes:
        version: Of core.
        ready: Whether new generations are taken.
        paused: Whether they are held back.
        draining: The server ends: it takes no more of them, and waits for those in flight.
        restarts: How often the engine was started again since the server was.
        lost_weights: Version of updated weights that went with an engine, until new ones come.
        in_flight: Answers that a drain would wait for.
        running: Ids of the answers that have not ended, as their clients know them.
        options: All options by section and name, as plain data; of secrets only that they are given.
        cache: How the KV cache was made; None where there is no engine.
        weight_transfer: Name of the weight-transfer engine; None: weights cannot be replaced.
        phases: Phases of the engine's steps, as the engine method `profile` tells them, and what is done in each.
    """

    @property
    def version(self) -> str: ...

    @property
    def ready(self) -> bool: ...

    @property
    def paused(self) -> bool: ...

    @property
    def draining(self) -> bool: ...

    @property
    def restarts(self) -> int: ...

    @property
    def lost_weights(self) -> str | None: ...

    @property
    def in_flight(self) -> int: ...

    @property
    def running(self) -> Sequence[str]: ...

    @property
    def options(self) -> Mapping[str, Any]: ...

    @property
    def cache(self) -> CacheFacts | None: ...

    @property
    def weight_transfer(self) -> str | None: ...

    @property
    def phases(self) -> Mapping[str, str]: ...

    async def pause(self, mode: PauseMode = "abort", *, clear_cache: bool = True) -> None:
        """Hold new requests back, and return once the engine rests.

        Args:
            clear_cache: Drop the prefix cache, unless requests were kept.

        Raises:
            EngineError: The engine is gone.
        """
        ...

    async def resume(self) -> None:
        """Let requests pass again. Raises `EngineError`."""
        ...

    def drain(self) -> None:
        """Begin the server's end, as the first SIGTERM does; harmless when it has begun."""
        ...

    async def abort(self, ids: Collection[str] | None = None) -> Sequence[str]:
        """End answers: their clients get what there is, with finish reason `abort`. Return the ids of those that ran.

        Args:
            ids: As clients know them; None: all that run.
        """
        ...

    async def recent_log(self, limit: int = RECENT_LINES) -> Sequence[Mapping[str, Any]]:
        """Return the last records of the log, the oldest first, without secrets.

        They are of the server's process and, while there is one to ask, of the engine's. Each has `time` (seconds since
        1970), `level`, `process`, `logger` and `message`, with a traceback if there is one.
        """
        ...
