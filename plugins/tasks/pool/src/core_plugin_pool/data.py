"""A model's I/O processor at work: data in, prompts through the model, an answer out; the same for every front end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, cast

from core.api.errors import CoreError, PluginError, RequestError
from core.api.fronts import Work
from core.api.io_processors import IOOutput, IOPrompts, IORequest
from core.api.kinds import Chosen
from core.api.pooled import DataAnswer, PoolingOutput, PoolingParams, PoolingRequestOutput
from core.api.pooling import PoolingFront, Pools

DATA = "data"
"""The request's field that is meant for the processor."""


@dataclass(frozen=True, slots=True)
class Step:
    """A call of one of the processor's methods."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class DataPooling:
    """Runs requests that bring data.

    Args:
        chosen: The I/O processor.
        pooler: Makes the work of its prompts.
    """

    def __init__(self, chosen: Chosen, pooler: PoolingFront) -> None:
        self._chosen, self._pooler = chosen, pooler

    async def run(self, request: IORequest, pool: Callable[[Work[Any]], Awaitable[Pools]]) -> DataAnswer:
        """Answer a request; `pool` runs work.

        Raises:
            RequestError: The processor or the model refuses the data.
            PluginError: CORE-P108, the processor failed.
        """
        steps = self._steps(request)
        step = next(steps)
        while True:
            found = await pool(step) if isinstance(step, Work) else await self._call(step)
            try:
                step = steps.send(found)
            except StopIteration as done:
                return cast(DataAnswer, done.value)

    def run_now(self, request: IORequest, pool: Callable[[Work[Any]], Pools]) -> DataAnswer:
        """As `run`, where there is no event loop."""
        steps = self._steps(request)
        step = next(steps)
        while True:
            found = pool(step) if isinstance(step, Work) else self._call_now(step)
            try:
                step = steps.send(found)
            except StopIteration as done:
                return cast(DataAnswer, done.value)

    # ---------------------------------------------------------------------------------------------------------------

    def _steps(self, request: IORequest) -> Generator[Step | Work[Any], Any, DataAnswer]:
        plugin = self._chosen.value
        request = replace(request, data=(yield Step("parse_request", plugin.parse_request, (request.data,))))
        given = yield Step("pre_process", plugin.pre_process, (request,))
        if not isinstance(given, IOPrompts):
            raise self._wrong(f"pre_process() gave a {type(given).__name__}, not IOPrompts")
        outputs: list[PoolingRequestOutput[PoolingOutput]] = yield self._work(request, given)
        seen = [
            IOOutput(_as_object(prompt, one.prompt_token_ids), one.outputs.data)
            for prompt, one in zip(given.prompts, outputs, strict=True)
        ]
        answer = yield Step("post_process", plugin.post_process, (request, seen))
        return DataAnswer(answer, outputs)

    def _work(self, request: IORequest, given: IOPrompts) -> Work[PoolingRequestOutput[PoolingOutput]]:
        try:
            params = PoolingParams(**{**request.params, **given.params})
        except TypeError as error:
            raise self._wrong(f"pre_process() gave pooling parameters that do not exist ({error})") from error
        if isinstance(given.prompts, (str, Mapping)) or not isinstance(given.prompts, Sequence):
            raise self._wrong(f"pre_process() gave prompts as a {type(given.prompts).__name__}, not as a list")
        if not given.prompts:
            raise RequestError("data: there is nothing in it that the model could read", param=DATA)
        return self._pooler.encode(given.prompts, params, given.task or request.task, param=DATA)

    async def _call(self, step: Step) -> Any:
        try:
            # It may read a file or decode an image: other requests go on meanwhile.
            found = await asyncio.to_thread(step.function, *step.arguments)
            return await found if inspect.isawaitable(found) else found
        except Exception as error:
            raise self._blamed(step, error) from error

    def _call_now(self, step: Step) -> Any:
        try:
            found = step.function(*step.arguments)
            return _awaited(found) if inspect.isawaitable(found) else found
        except Exception as error:
            raise self._blamed(step, error) from error

    def _blamed(self, step: Step, error: Exception) -> Exception:
        """Return the error as users see it: the client's fault with its words, or the plugin's."""
        if isinstance(error, (CoreError, RequestError)):
            return error
        if isinstance(error, ValueError) and step.name != "post_process":
            return RequestError(f"data: {error}", param=DATA)
        return self._chosen.blame(f"{step.name}()", error)

    def _wrong(self, what: str) -> PluginError:
        return PluginError("CORE-P108", f"I/O processor {self._chosen.owner}: {what}.")


def no_processor(name: str) -> RequestError:
    """Return the refusal of data where nobody reads it."""
    text = f"data: model '{name}' was started without an I/O processor that reads it (--io-processor)"
    return RequestError(text, param=DATA)


def _as_object(prompt: Any, ids: list[int]) -> dict[str, Any]:
    given = dict(prompt) if isinstance(prompt, Mapping) else {"prompt": prompt} if isinstance(prompt, str) else {}
    return {**given, "prompt_token_ids": ids}


def _awaited(found: Awaitable[Any]) -> Any:
    """Run a coroutine to its end, on a thread of its own: there may be an event loop on this one."""

    async def wait() -> Any:
        return await found

    with ThreadPoolExecutor(1, thread_name_prefix="core-io-processor") as pool:
        return pool.submit(asyncio.run, wait()).result()
