"""`EngineClient` over what the server serves: routes of plugins ask as clients of the server's own API do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

import orjson
from pydantic import ValidationError

from core.api.errors import CoreError, RequestError
from core.api.routes import GeneratedText
from core.api.sampling import SamplingView
from core.api.sinks import EngineStats
from core.api.tokenizer import Tokenizer
from core.engine.sampling import SamplingParams
from core.frontend.pooling.model import does_not_generate
from core.frontend.request import GenerationRequest
from core.frontend.sinks import engine_stats
from core.server.account import note_error
from core.server.caller import caller_of
from core.server.errors import ApiError, as_api_error
from core.server.openai.chat import chat_job
from core.server.openai.completions import completion_job
from core.server.openai.job import ApiJob
from core.server.openai.protocol import ChatBody, CompletionBody
from core.server.pooling.protocol import EmbeddingBody
from core.server.pooling.vectors import embedding_call
from core.server.state import Lifecycle, ServerState
from core.server.streaming import stopping


class ServedClient:
    """The running server, as routes of plugins see it."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._llm = state.llm

    @property
    def model_name(self) -> str:
        """Name the model is served under."""
        return self._llm.model_name

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output, in tokens."""
        return self._llm.max_model_len

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._llm.tokenizer

    @property
    def stats(self) -> EngineStats:
        """The engine's latest figures."""
        return engine_stats(self._llm.stats)

    @property
    def healthy(self) -> bool:
        """Whether the engine lives and moves on."""
        return self._llm.healthy

    @property
    def created(self) -> int:
        """When the server was started, in seconds since 1970."""
        return self._state.created

    @property
    def abilities(self) -> frozenset[str]:
        """What can be asked for."""
        state, pooler = self._state, self._llm.pooling
        if pooler is not None:
            return frozenset(pooler.tasks)
        parser = state.parser
        found = {
            "complete": True,
            "chat": bool(self._llm.template_names),
            "tools": state.options.select.tool_parser is not None,
            "thinking": parser is not None and parser.thinking is not None,
        }
        return frozenset(name for name, there in found.items() if there)

    @property
    def facts(self) -> Mapping[str, Any]:
        """What is known of the checkpoint."""
        config = self._llm.config
        if config is None:
            return {}
        names = ("architecture", "format", "quantization", "num_bytes")
        return {"dtype": config.dtype, **{name: getattr(config.checkpoint, name) for name in names}}

    # -- generations -----------------------------------------------------------------------------------------------

    async def generate(
        self, prompt: str | Sequence[int], params: SamplingView | None = None
    ) -> AsyncIterator[GeneratedText]:
        """Yield what a generation has given so far. Raises `RequestError`."""
        chosen = params if isinstance(params, SamplingParams) else SamplingParams(**self._state.defaults)
        asked = prompt if isinstance(prompt, str) else list(prompt)
        with _refusing(self._state.lifecycle), _counted(self._state.lifecycle):
            self._state.admit(chosen.n)
            request = GenerationRequest(prompt=asked, params=chosen, caller=caller_of())
            async with aclosing(await self._llm.submit(request)) as outputs:
                async for output in outputs:
                    first = output.outputs[0]
                    yield GeneratedText(first.text, tuple(first.token_ids), first.finish_reason)

    def chat(self, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the chunks of a chat answer. Raises `RequestError`."""

        async def open_job() -> ApiJob:
            fields = dict(body)
            job, _ = await chat_job(self._state, self._state.checked(fields, ChatBody), fields)
            return job

        return self._chunks(open_job)

    def complete(self, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the chunks of a completion. Raises `RequestError`."""

        async def open_job() -> ApiJob:
            fields = dict(body)
            job, _ = completion_job(self._state, self._state.checked(fields, CompletionBody), fields)
            return job

        return self._chunks(open_job)

    async def _chunks(self, open_job: Callable[[], Awaitable[ApiJob]]) -> AsyncGenerator[dict[str, Any], None]:
        with _refusing(self._state.lifecycle), _counted(self._state.lifecycle):
            pooler = self._llm.pooling
            if pooler is not None:
                raise does_not_generate(pooler.name, pooler.shape)
            async with aclosing((await open_job()).chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk

    # -- vectors ---------------------------------------------------------------------------------------------------

    async def embed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return embeddings. Raises `RequestError`."""
        with _refusing(self._state.lifecycle), _counted(self._state.lifecycle):
            checked = self._state.checked({**body, "encoding_format": "float"}, EmbeddingBody)
            call = await embedding_call(self._state, checked)
            answer: dict[str, Any] = orjson.loads((await call.run()).body)
            return answer

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text. Raises `RequestError`."""
        with _refusing(self._state.lifecycle), _counted(self._state.lifecycle):
            return await self._state.tokenize(text, add_special_tokens=add_special_tokens)

    async def call(self, method: str, *args: Any) -> Any:
        """Call a named engine method with plain data."""
        return await self._llm.call(method, *args)


@contextmanager
def _counted(lifecycle: Lifecycle) -> Iterator[None]:
    """Have a drain wait for the current task."""
    task = asyncio.current_task()
    mine = task is not None and task not in lifecycle.work
    if task is not None and mine:
        lifecycle.work.add(task)
    try:
        yield
    finally:
        if task is not None and mine:
            lifecycle.work.discard(task)


@contextmanager
def _refusing(lifecycle: Lifecycle) -> Iterator[None]:
    """Turn what goes wrong into `RequestError`s, which is all that plugins know; the server's end is one too."""
    try:
        yield
    except asyncio.CancelledError:
        if not lifecycle.stopped:
            raise
        # Not this task's end: whoever waits for it, in another task perhaps, has an error to say in its own words.
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
        ending = stopping()
        raise RequestError(ending.message, code=ending.code, status=ending.status) from None
    except (ApiError, ValidationError, CoreError) as error:
        found = note_error(as_api_error(error))
        raise RequestError(found.message, param=found.param, code=found.code, status=found.status) from error
