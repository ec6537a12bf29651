"""The server as admin routes see it, and what they have begun."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from core.api import EngineClient, Operator

T = TypeVar("T")


class Server:
    """The running server, and what an operator has begun and not ended.

    Attributes:
        client: The engine.
        operator: What an operator sees and does.
        profiling: The engine's steps are timed.
        updating: How often the engine had been started again when a weight update was begun; None: none was. One that
            was begun in another engine is not open any more.
        loading: Held while weights are read.
    """

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self.operator: Operator = client.operator
        self.profiling = False
        self.updating: int | None = None
        self.loading = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def carry_out(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something to its end, even if whoever asked for it does not wait so long."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._log)
            raise

    def _log(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.client.error(error)
