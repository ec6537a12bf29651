"""Work of a route for the engine's task: checked, admitted, run, counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel

from core.api.bodies import invalid
from core.api.errors import PluginError
from core.api.fronts import Work
from core.api.pooled import PoolingParams, PoolingRequestOutput
from core.api.pooling import MAX_PROMPTS, DataRequest, Pooled, PoolingFront, PoolRequest, ScoreRequest, VectorRequest
from core.api.serving import ChatRequest, Usage
from core.frontend.prompts import PromptInput
from core.frontend.spelling import spelling
from core.frontend.tasks.data import io_request
from core.frontend.tasks.refusals import does_not_pool
from core.server.account import note_tokens
from core.server.serving.caller import caller_of
from core.server.serving.entry import THREAD_CHARS, render_alone
from core.server.serving.generation import new_id
from core.server.serving.request import chat_request
from core.server.state import ServerState

T = TypeVar("T")

MAX_NUMBERS = 2**24
"""Most numbers of an answer that has a vector for every token."""

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def required_pooler(state: ServerState, task: str | None = None) -> PoolingFront:
    """Return what makes vectors of prompts. Raises `RequestError` if the model generates, or has not this task."""
    found = state.llm.pooling
    if found is None:
        raise does_not_pool(state.llm.model_name)
    if task is not None:
        found.check(task)
    return found


async def pooled(state: ServerState, asked: PoolRequest[Any], prefix: str) -> Pooled[Any]:
    """Answer a request; cancelling it aborts what it runs. Raises `ApiError`, `RequestError`, `CoreError`."""
    name = new_id(prefix)
    with spelling(asked.names):
        if isinstance(asked, DataRequest):
            return await _answered(state, asked, name)
        if isinstance(asked, ScoreRequest):
            found, usage = await _run(state, asked, _scores(state, asked))
            return Pooled(name, [one.outputs.score for one in found], usage)
        if isinstance(asked, VectorRequest):
            found, usage = await _run(state, asked, await _vectors(state, asked))
            return Pooled(name, [one.outputs.data for one in found], usage)
    raise TypeError(f"a {type(asked).__name__} says nothing that could be pooled")


async def run_work(
    state: ServerState, work: Work[T], *, priority: int, cache_salt: str | None, user: str | None
) -> list[T]:
    """Run work of the task's front half; cancelling it aborts it. Raises as `pooled`."""
    began = time.perf_counter()
    with state.admitted(len(work.prompts)):
        found = await state.llm.pool(work, priority=priority, cache_salt=cache_salt, caller=caller_of(user))
    tokens = sum(len(prompt.ids) for prompt in work.prompts)
    _counted(state, tokens, 0, time.perf_counter() - began, len(work.prompts))
    return found


@dataclass(frozen=True, slots=True)
class _Call:
    """Work of one request that runs.

    Attributes:
        prompts: What it tokenizes.
        prepare: Checks and tokenizes; raises `RequestError`.
        param: The field that the prompts came from.
        per_token: Numbers of the answer for each prompt token; 0 where prompts have one vector each.
    """

    prompts: Sequence[PromptInput]
    prepare: Callable[[], Work[PoolingRequestOutput[Any]]]
    param: str
    per_token: int = 0


async def _vectors(state: ServerState, asked: VectorRequest) -> _Call:
    pooler, params = required_pooler(state, asked.task), PoolingParams(**asked.params)
    param = _bounded(asked, "prompts", asked.prompts)
    prompts = [await _read(state, one) for one in asked.prompts]
    task = asked.task or pooler.tasks[0]
    per_token = pooler.size if task.startswith("token_") else 0
    return _Call(prompts, partial(pooler.encode, prompts, params, task, param=param), param, per_token)


async def _read(state: ServerState, prompt: Any) -> PromptInput:
    """Return a prompt; a conversation as its template renders it."""
    if isinstance(prompt, ChatRequest):
        return (await render_alone(state, chat_request(prompt, state))).tolist()
    given: PromptInput = prompt
    return given


def _scores(state: ServerState, asked: ScoreRequest) -> _Call:
    pooler, params = required_pooler(state, "score"), PoolingParams(**asked.params)
    first, second = _bounded(asked, "queries", asked.queries), _bounded(asked, "documents", asked.documents)
    prepare = partial(pooler.score, asked.queries, asked.documents, params, query_param=first, param=second)
    return _Call([*asked.queries, *asked.documents], prepare, second)


def _bounded(asked: PoolRequest[Any], field: str, given: Sequence[Any]) -> str:
    """Return the API's own name of a list that is not too long. Raises `RequestError`."""
    param = asked.names.get(field, field)
    if len(given) > MAX_PROMPTS:
        raise invalid(param, f"has {len(given)} entries; at most {MAX_PROMPTS}")
    return param


async def _run(
    state: ServerState, asked: PoolRequest[Any], call: _Call
) -> tuple[list[PoolingRequestOutput[Any]], Usage]:
    began = time.perf_counter()
    count, chars = _size_of(call.prompts)
    with state.admitted(count):
        # Long texts wait for each other: many of them at a time would take their memory at the same time.
        loop, long = asyncio.get_running_loop(), chars > THREAD_CHARS
        work = await loop.run_in_executor(state.renderers, call.prepare) if long else call.prepare()
        tokens = sum(len(prompt.ids) for prompt in work.prompts)
        if tokens * call.per_token > MAX_NUMBERS:
            most = MAX_NUMBERS // call.per_token
            said = f"has {tokens} tokens; with a vector for each, at most {most} fit into one answer"
            raise invalid(call.param, said)
        found = await state.llm.pool(work, **_treatment(asked))
    return found, _counted(state, tokens, _cached(found), time.perf_counter() - began, len(work.prompts))


async def _answered(state: ServerState, asked: DataRequest, name: str) -> Pooled[bytes]:
    required_pooler(state)
    request = io_request(asked.data, PoolingParams(**asked.params), asked.task, name)
    began = time.perf_counter()
    with state.admitted():
        done = await state.llm.pool_data(request, **_treatment(asked))
    seconds = time.perf_counter() - began
    usage = _counted(state, done.prompt_tokens, _cached(done.outputs), seconds, len(done.outputs))
    return Pooled(name, [await asyncio.to_thread(written, done.answer)], usage)


def _treatment(asked: PoolRequest[Any]) -> dict[str, Any]:
    return {"priority": asked.priority, "cache_salt": asked.cache_salt, "caller": caller_of(asked.user)}


def _size_of(prompts: Iterable[PromptInput]) -> tuple[int, int]:
    """Return how many prompts there are, and how many characters their texts have together."""
    found = [prompt.get("prompt") if isinstance(prompt, Mapping) else prompt for prompt in prompts]
    texts = [len(text) if isinstance(text, str) else 0 for text in found]
    return len(texts), sum(texts)


def _cached(results: Sequence[PoolingRequestOutput[Any]]) -> int:
    return sum(result.num_cached_tokens for result in results)


def _counted(state: ServerState, tokens: int, cached: int, seconds: float, prompts: int) -> Usage:
    """Count a call that was answered, with so many tokens of so many prompts, and return its usage."""
    metrics = state.metrics
    note_tokens(tokens, 0, cached)
    metrics.prompt_tokens.inc(tokens)
    metrics.cached_tokens.inc(cached)
    metrics.e2e_latency.observe(seconds)
    metrics.request_prompt_tokens.observe(tokens)
    for _ in range(prompts):
        metrics.finished("stop")
    return Usage(prompt=tokens, cached=cached)


def written(answer: Any) -> bytes:
    """Return an I/O processor's answer as JSON. Raises `PluginError` CORE-P108 if it holds what has no form there."""
    try:
        return orjson.dumps(answer, default=_plain, option=_OPTIONS)
    except orjson.JSONEncodeError as error:
        raise PluginError("CORE-P108", f"the I/O processor's answer cannot be written as JSON: {error}.") from error


def _plain(value: Any) -> Any:
    """Return what orjson does not know itself as what it knows."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if hasattr(value, "tolist"):  # arrays that are not contiguous, and numpy's numbers
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} has no form in JSON")
