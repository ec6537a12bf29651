"""Online pooling: the methods of `AsyncLLM` that give vectors, classes and scores."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from core.api.fronts import Work
from core.api.io_processors import IORequest
from core.api.pooled import DataAnswer, PoolingParams, PoolingRequestOutput
from core.api.requests import Caller
from core.frontend.caller import NOBODY
from core.frontend.engine_link import EngineLink
from core.frontend.model import FrontModel
from core.frontend.pausing import PauseGate, aborted
from core.frontend.prompts import PromptInput, as_list
from core.frontend.tasks.data import as_output, data_of, io_request
from core.frontend.tasks.requests import TaskBatch, TaskRequests

T = TypeVar("T")

ABORTED = "The request was ended by the server's operator."


class PoolingTasks:
    """Pooling for many tasks, beside the generations of a front end."""

    model: FrontModel
    _gate: PauseGate
    _link: EngineLink
    _pooled: TaskRequests
    _batches: dict[str, TaskBatch]
    _numbers: Iterator[int]

    @abstractmethod
    def _check_alive(self) -> None: ...

    @abstractmethod
    def _check_room(self, wanted: int) -> None: ...

    async def encode(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        pooling_params: PoolingParams | None = None,
        *,
        pooling_task: str | None = None,
    ) -> list[PoolingRequestOutput[Any]]:
        """Return arrays: what the model gives for `embed`, `token_embed`, `classify` or `token_classify`.

        A prompt `{"data": ...}`, or a list of such, is for the model's I/O processor: `outputs` is then its answer.

        Raises:
            RequestError: The model cannot do it, or a prompt or parameter cannot be served.
            EngineError: The engine is gone.
        """
        pooler, params = self.model.pooler(), pooling_params or PoolingParams()
        data = data_of(prompts)
        if data is None:
            return await self.pool(pooler.encode(as_list(prompts), params, pooling_task))
        requests = [io_request(one, params, pooling_task, f"pooling-{index}") for index, one in enumerate(data)]
        tasks = [asyncio.ensure_future(self.pool_data(request)) for request in requests]
        try:
            done = await asyncio.gather(*tasks)
        finally:
            for task in tasks:  # when one is refused, nobody waits for the others
                task.cancel()
        return [as_output(request, one) for request, one in zip(requests, done, strict=True)]

    async def pool_data(
        self, request: IORequest, *, priority: int = 0, cache_salt: str | None = None, caller: Caller = NOBODY
    ) -> DataAnswer:
        """Answer a request through the model's I/O processor; cancelling it aborts what it runs.

        Raises:
            RequestError: There is no processor, or it or the model refuses the data.
            CoreError: The processor failed, or the engine is gone.
        """
        pool = partial(self.pool, priority=priority, cache_salt=cache_salt, caller=caller)
        return await self.model.pooler().run(request, pool)

    async def pool(
        self, work: Work[T], *, priority: int = 0, cache_salt: str | None = None, caller: Caller = NOBODY
    ) -> list[T]:
        """Run work of the task's front half; cancelling it aborts its requests. Raises as `encode`."""
        self._check_alive()
        self.model.admit_work(work.prompts, caller)
        name = f"pooling-{next(self._numbers)}"
        if not await self._gate.passed(name):
            raise aborted(ABORTED)
        self._check_alive()
        self._check_room(len(work.prompts))
        batch, messages = self._pooled.add(work.prompts, priority=priority, cache_salt=cache_salt, caller=caller)
        done = asyncio.Event()
        batch.on_done = done.set
        self._batches[name] = batch
        try:
            self._link.send(messages)
            if messages:
                await done.wait()
        finally:
            del self._batches[name]
            self._link.abort(self._pooled.drop(batch))
        return work.finish(batch.answers())
