"""Two ways to reach an engine: stepped by the caller, or running on its own behind messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from core.config.resolved import EngineConfig
from core.engine.child import EngineChild
from core.engine.core import EngineCore
from core.engine.local import LocalEngine
from core.engine.messages import FromEngine, Progress, Ready, ToEngine
from core.engine.remote import ThreadEngine, start_process


class SyncEngine(Protocol):
    """An engine in this process that runs when it is stepped (offline use, tests, notebooks)."""

    ready: Ready

    def send(self, message: ToEngine) -> None: ...

    def step(self) -> list[FromEngine]:
        """Run until at least one message is produced and return the messages; empty when there is no work."""
        ...

    def close(self) -> None: ...


class AsyncEngine(Protocol):
    """An engine that runs on its own, in a child process or a thread."""

    ready: Ready

    def send(self, message: ToEngine) -> None:
        """Hand over a message; never blocks. Raises `EngineError` if the engine is gone."""
        ...

    async def receive(self) -> FromEngine:
        """Return the next message. Raises `EngineError` (with the cause) once the engine is gone."""
        ...

    def alive(self) -> bool:
        """Whether the process and each of its threads live, and work in progress moves on."""
        ...

    async def close(self) -> None: ...


ProgressCallback = Callable[[Progress], None]


def open_sync(config: EngineConfig, on_progress: ProgressCallback | None = None) -> SyncEngine:
    """Start an engine in this process. Raises `CoreError` with the cause if it cannot start."""
    return LocalEngine(EngineCore.start(config, on_progress))


async def open_async(
    config: EngineConfig,
    *,
    in_process: bool = False,
    on_progress: ProgressCallback | None = None,
    child: EngineChild | None = None,
) -> AsyncEngine:
    """Start an engine in a child process (or, `in_process`, in a thread of this one).

    Args:
        child: The child process, if it was started ahead.

    Raises:
        CoreError: The engine cannot start; the cause is the child's own error.
    """
    if in_process:
        return ThreadEngine(await asyncio.to_thread(EngineCore.start, config, on_progress))
    return await start_process(config, on_progress, child)
