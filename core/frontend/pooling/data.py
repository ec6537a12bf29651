"""A model's I/O processor at work: data in, prompts through the model, an answer out; the same for every front end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec

from core.api.errors import CoreError, PluginError, RequestError
from core.api.io_processors import IOOutput, IOProcessor, IOPrompts, IORequest
from core.frontend.pooling.model import PoolingModel, Work
from core.frontend.pooling.results import PoolingOutput, PoolingParams, PoolingRequestOutput
from core.plugins.drivers import describe

DATA = "data"
"""The request's field, and the key of an offline prompt, that is meant for the processor."""

Pooled = list[PoolingRequestOutput[PoolingOutput]]


@dataclass(frozen=True, slots=True)
class Step:
    """A call of one of the processor's methods."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class DataAnswer:
    """An answer, and what the model gave for it."""

    answer: Any
    outputs: Pooled

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(len(one.prompt_token_ids) for one in self.outputs)


def data_of(prompts: Any) -> list[Any] | None:
    """Return what offline prompts of the form `{"data": ...}` bring; None for prompts of any other form."""
    if isinstance(prompts, Mapping):
        return [prompts[DATA]] if set(prompts) == {DATA} else None
    if not isinstance(prompts, (list, tuple)) or not prompts:
        return None
    found = [data_of(one) if isinstance(one, Mapping) else None for one in prompts]
    return None if None in found else [one[0] for one in found if one is not None]


class DataPooling:
    """Runs requests that bring data.

    Args:
        owner: The processor's plugin and distribution, for errors.
    """

    def __init__(self, processor: IOProcessor, owner: str, pooler: PoolingModel) -> None:
        self._processor, self._owner, self._pooler = processor, owner, pooler

    async def run(self, request: IORequest, pool: Callable[[Work[Any]], Awaitable[Pooled]]) -> DataAnswer:
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

    def run_now(self, request: IORequest, pool: Callable[[Work[Any]], Pooled]) -> DataAnswer:
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
        plugin = self._processor
        request = replace(request, data=(yield Step("parse_request", plugin.parse_request, (request.data,))))
        given = yield Step("pre_process", plugin.pre_process, (request,))
        if not isinstance(given, IOPrompts):
            raise self._wrong(f"pre_process() gave a {type(given).__name__}, not IOPrompts")
        outputs: Pooled = yield self._work(request, given)
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
        return self._wrong(f"{step.name}() raised {describe(error)}")

    def _wrong(self, what: str) -> PluginError:
        return PluginError("CORE-P108", f"I/O processor {self._owner}: {what}.")


def io_request(data: Any, params: PoolingParams, task: str | None, request_id: str) -> IORequest:
    """Return a request as the processor sees it first."""
    given = {name: value for name, value in msgspec.structs.asdict(params).items() if value is not None}
    return IORequest(request_id, data, task, given)


def as_output(request: IORequest, done: DataAnswer) -> PoolingRequestOutput[Any]:
    """Return an answer as offline calls give it."""
    ids = [token for one in done.outputs for token in one.prompt_token_ids]
    cached = sum(one.num_cached_tokens for one in done.outputs)
    return PoolingRequestOutput(request.request_id, done.answer, ids, cached)


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
