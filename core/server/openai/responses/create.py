"""`POST /v1/responses` and `POST /v1/responses/input_tokens`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from core.engine.sampling import SamplingParams
from core.frontend.answering.reader import AnswerReader
from core.frontend.request import GenerationRequest
from core.frontend.results import CompletionOutput
from core.server.answers import json_answer
from core.server.dialect import Dialect
from core.server.entry import open_chat, render
from core.server.errors import ApiError
from core.server.openai.logprobs import chat_logprobs
from core.server.openai.rendering import rendered
from core.server.openai.responses import background
from core.server.openai.responses.answer import Answer
from core.server.openai.responses.ask import Asked, AskReader
from core.server.openai.responses.composer import Composer
from core.server.openai.responses.items import new_id
from core.server.openai.responses.job import ResponseJob, ResponseWork, StreamDialect
from core.server.openai.responses.mcp.job import RemoteJob, all_lists
from core.server.openai.responses.mcp.turns import Turns
from core.server.openai.responses.output import Score
from core.server.openai.responses.params import call_limit, repeated
from core.server.openai.responses.protocol import ResponsesBody
from core.server.openai.responses.store import Record, ResponseStore
from core.server.openai.responses.truncate import fitted
from core.server.remote.sessions import RemoteSessions
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
        job: ResponseWork = self._remote_job(asked) if asked.tools.servers else await self._job(asked)
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
        asked, wanted = await self._wanted(request)
        ids = await render(self._state, wanted)
        answer = {"object": "response.input_tokens", "input_tokens": len(ids)}
        return json_answer(answer, asked.headers)

    async def render(self, request: Request) -> Response:
        """Return what the engine would be sent first; nothing is generated."""
        asked, wanted = await self._wanted(request)
        shown = await rendered(self._state, wanted)
        return json_answer(shown, asked.headers)

    async def _wanted(self, request: Request) -> tuple[Asked, GenerationRequest]:
        asked = await self._reader.read(request)
        return asked, await self._with_lists(asked) if asked.tools.servers else asked.request

    async def _job(self, asked: Asked) -> ResponseJob:
        body, state, name = asked.body, self._state, new_id("resp")
        wanted = await fitted(state, asked.request) if body.truncation == "auto" else asked.request
        chat = await open_chat(state, wanted, name, interval=self._interval(body))
        params = chat.generation.params
        call_id = chat.call_id if chat.parser else None
        composer = Composer(
            max_calls=call_limit(body),
            call_id=call_id,
            show_ids=bool(body.return_token_ids),
            make_call=asked.tools.open_call,
        )
        scores = self._scores(body, params.logprobs)
        return ResponseJob(chat.generation, self._answer(asked, params, name), composer, chat.reader(), scores)

    def _remote_job(self, asked: Asked) -> ResponseWork:
        """Return a job that asks its MCP servers before it asks the model."""
        body, state, params, name = asked.body, self._state, asked.request.params, new_id("resp")
        state.admit(params.n)
        sessions, rounds = self._sessions(asked)
        turns = Turns(state, name, params.max_tokens, body.truncation == "auto", self._interval(body))
        return RemoteJob(
            turns,
            self._answer(asked, params, name),
            Composer(show_ids=bool(body.return_token_ids)),
            AnswerReader(None, calls=False),  # of the first turn, which brings its own
            self._scores(body, params.logprobs),
            asked=asked,
            sessions=sessions,
            rounds=rounds,
        )

    async def _with_lists(self, asked: Asked) -> GenerationRequest:
        """Return the request of the first turn, with the tools that its MCP servers list."""
        sessions, _ = self._sessions(asked)
        try:
            lists = await all_lists(asked, sessions)
        finally:
            await sessions.close()
        tools = asked.tools.with_lists(lists)
        return asked.turn([], tools, tools.choice, asked.request.params.max_tokens)

    def _sessions(self, asked: Asked) -> tuple[RemoteSessions, int]:
        remote = self._state.remote
        if remote is None:
            raise TypeError("requests with MCP servers are refused where there are none")
        return RemoteSessions(remote, {one.label: one.endpoint for one in asked.tools.servers}), remote.rounds

    def _answer(self, asked: Asked, params: SamplingParams, name: str) -> Answer:
        ids: list[int] | None = [] if asked.body.return_token_ids else None
        return Answer(name, self._state.llm.model_name, repeated(asked.body, params, asked.tools), prompt_ids=ids)

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
