"""One pooling request: admitted, run while somebody waits for it, counted, answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from core.api.bodies import invalid
from core.frontend.pooling.model import PoolingModel, Work, does_not_pool
from core.frontend.pooling.results import PoolingRequestOutput
from core.frontend.prompts import PromptInput
from core.server.account import note_tokens
from core.server.answers import JSON
from core.server.entry import THREAD_CHARS
from core.server.pooling.inputs import size_of
from core.server.pooling.protocol import TreatedBody
from core.server.state import ServerState
from core.server.streaming import until_gone
from core.tokenizer.absent import NoTokenizer

T = TypeVar("T")

MAX_NUMBERS = 2**24
"""Most numbers of an answer that has a vector for every token."""


def required_pooler(state: ServerState, task: str | None = None) -> PoolingModel:
    """Return what makes vectors of prompts. Raises `RequestError` if the model generates, or has not this task."""
    found = state.llm.pooling
    if found is None:
        raise does_not_pool(state.llm.model_name)
    if task is not None:
        found.check(task)
    return found


def example_of(state: ServerState) -> tuple[str, dict[str, Any]] | None:
    """Return path and body of a first request to a model that pools; None for one that generates."""
    pooler = state.llm.pooling
    if pooler is None:
        return None
    if isinstance(state.llm.tokenizer, NoTokenizer):
        return "/pooling", {"data": {}}  # its processor says what belongs there
    if "embed" in pooler.tasks:
        return "/v1/embeddings", {"input": "Hello!"}
    if "score" in pooler.tasks:
        return "/score", {"text_1": "Hello!", "text_2": ["Good morning!", "Goodbye!"]}
    return "/classify" if "classify" in pooler.tasks else "/pooling", {"input": "Hello!"}


@dataclass(frozen=True, slots=True)
class Encoded:
    """An answer's body and what says how to read it."""

    body: bytes
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class PoolingCall(Generic[T]):
    """What a route asks for.

    Attributes:
        prepare: Checks and tokenizes; raises `RequestError`.
        prompts: What it tokenizes.
        render: Makes the answer from the results and the number of prompt tokens.
        per_token: Numbers of the answer for each prompt token; 0 where prompts have one vector each.
    """

    state: ServerState
    body: TreatedBody
    prepare: Callable[[], Work[PoolingRequestOutput[T]]]
    prompts: Sequence[PromptInput]
    render: Callable[[list[PoolingRequestOutput[T]], int], Encoded]
    per_token: int = 0

    async def run(self) -> Encoded:
        """Do it. Raises `ApiError`, `RequestError`, `EngineError`."""
        state, began = self.state, time.perf_counter()
        count, chars = size_of(self.prompts)
        with state.admitted(count):
            # Long texts wait for each other: many of them at a time would take their memory at the same time.
            loop = asyncio.get_running_loop()
            long = chars > THREAD_CHARS
            work = await loop.run_in_executor(state.renderers, self.prepare) if long else self.prepare()
            tokens = sum(len(prompt.ids) for prompt in work.prompts)
            self._check_size(tokens)
            results = await state.llm.pool(work, **self.body.treatment())
        count_pooled(state, results, tokens, time.perf_counter() - began, len(work.prompts))
        return await asyncio.to_thread(self.render, results, tokens)

    def _check_size(self, tokens: int) -> None:
        if tokens * self.per_token > MAX_NUMBERS:
            most = MAX_NUMBERS // self.per_token
            raise invalid("input", f"has {tokens} tokens; with a vector for each, at most {most} fit into one answer")


def count_pooled(
    state: ServerState,
    results: Sequence[PoolingRequestOutput[Any]],
    tokens: int,
    seconds: float,
    prompts: int | None = None,
) -> None:
    """Count a call that was answered.

    Args:
        tokens: Of all its prompts.
        prompts: How many there were, where there is no result for each.
    """
    metrics, cached = state.metrics, sum(result.num_cached_tokens for result in results)
    note_tokens(tokens, 0, cached)
    metrics.prompt_tokens.inc(tokens)
    metrics.cached_tokens.inc(cached)
    metrics.e2e_latency.observe(seconds)
    metrics.request_prompt_tokens.observe(tokens)
    for _ in range(len(results) if prompts is None else prompts):
        metrics.finished("stop")


class Call(Protocol):
    """What a route asks for, and how it is answered."""

    @property
    def state(self) -> ServerState: ...

    @property
    def body(self) -> TreatedBody: ...

    async def run(self) -> Encoded:
        """Do it. Raises `ApiError`, `RequestError`, `EngineError`."""
        ...


class PoolingResponse(Response):
    """Runs a call while it watches the connection; it is cancelled when the client goes or the server stops.

    Args:
        fields: Of the body, as they were sent.
    """

    def __init__(self, call: Call, fields: Mapping[str, Any]) -> None:
        # No `super().__init__`: it would announce the length of a body that does not exist yet.
        self.status_code = 200
        self.media_type = None
        self.background = None
        self.init_headers(call.state.unread_fields(fields, type(call.body).model_fields))
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_gone(self._call.state.lifecycle, receive, self._answer(send))

    async def _answer(self, send: Send) -> None:
        answer = await self._call.run()
        own = {"content-type": answer.media_type, "content-length": str(len(answer.body)), **answer.headers}
        headers = [*self.raw_headers, *((name.encode("ascii"), value.encode("latin-1")) for name, value in own.items())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})


def as_json(value: Any) -> Encoded:
    """Return an answer as JSON; numpy arrays become lists."""
    return Encoded(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))


def usage(tokens: int) -> dict[str, int]:
    """Return the usage of a request that generates nothing."""
    return {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}
