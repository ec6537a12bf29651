"""`POST /v1/responses` and `POST /v1/responses/input_tokens`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import orjson
from starlette.requests import Request
from starlette.responses import Response

from core.frontend.results import CompletionOutput
from core.server.dialect import Dialect
from core.server.entry import OpenChat, open_chat, render
from core.server.errors import ApiError
from core.server.openai.logprobs import chat_logprobs
from core.server.openai.responses import background
from core.server.openai.responses.answer import Answer
from core.server.openai.responses.ask import Asked, AskReader
from core.server.openai.responses.composer import Composer
from core.server.openai.responses.items import new_id
from core.server.openai.responses.job import ResponseJob, StreamDialect
from core.server.openai.responses.output import Score
from core.server.openai.responses.params import call_limit, repeated
from core.server.openai.responses.protocol import ResponsesBody
from core.server.openai.responses.store import Record, ResponseStore
from core.server.openai.responses.truncate import fitted
from core.server.state import ServerState
from core.server.streaming import JobResponse


class CreateRoutes:
    """Answers requests, and counts what they would cost."""

    def __init__(self, state: ServerState, store: ResponseStore) -> None:
        self._state, self._store = state, store
        self._reader = AskReader(state, store)

    async def create(self, request: Request) -> Response:
        """Validate, render, and hand the generation to a response that runs it, or to the background."""
        asked, state = await self._reader.read(request), self._state
        wanted = await fitted(state, asked.request) if asked.body.truncation == "auto" else asked.request
        name = new_id("resp")
        chat = await open_chat(state, wanted, name, interval=self._interval(asked.body))
        job = self._job(asked, chat, name)
        record = Record(job.answer, asked.earlier, asked.items)
        stream = bool(asked.body.stream)
        if asked.body.background:
            self._store.admit()
            background.start(state.lifecycle, self._store, record, job)
            followed = background.Follower(record)
            return JobResponse(state.lifecycle, followed, stream=stream, headers=asked.headers, dialect=silent())
        if asked.kept:
            job.on_end = partial(self._store.put, record)
        dialect = StreamDialect(body=ApiError.body, status=_status, job=job)
        return JobResponse(state.lifecycle, job, stream=stream, headers=asked.headers, dialect=dialect)

    async def count(self, request: Request) -> Response:
        """Return how many tokens a request's input has."""
        asked = await self._reader.read(request)
        ids = await render(self._state, asked.request)
        answer = {"object": "response.input_tokens", "input_tokens": len(ids)}
        return Response(orjson.dumps(answer), headers=asked.headers, media_type="application/json")

    def _job(self, asked: Asked, chat: OpenChat, name: str) -> ResponseJob:
        body, params = asked.body, chat.generation.params
        ids: list[int] | None = [] if body.return_token_ids else None
        answer = Answer(name, self._state.llm.model_name, repeated(body, params, asked.tools), prompt_ids=ids)
        call_id = chat.call_id if chat.parser else None
        composer = Composer(max_calls=call_limit(body), call_id=call_id, show_ids=bool(body.return_token_ids))
        return ResponseJob(chat.generation, answer, composer, chat.reader(), self._scores(body, params.logprobs))

    def _scores(self, body: ResponsesBody, top: int | None) -> Callable[[CompletionOutput], Sequence[Score]] | None:
        given, tokenizer = body.return_tokens_as_token_ids, self._state.llm.tokenizer
        as_ids = self._state.options.server.return_tokens_as_token_ids if given is None else given
        if top is None:
            return None
        return lambda sequence: chat_logprobs(
            sequence.token_ids, sequence.logprobs or (), tokenizer, top, as_ids=as_ids
        )

    def _interval(self, body: ResponsesBody) -> int:
        return (body.stream_interval or self._state.options.server.stream_interval) if body.stream else 1


def silent() -> Dialect:
    """Return how streams of the past end: their last event is the response's own."""
    return Dialect(body=ApiError.body, status=_status)


def _status(error: ApiError) -> int:
    return error.status
