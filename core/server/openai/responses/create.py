"""`POST /v1/responses` and `POST /v1/responses/input_tokens`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response

from core.api.serving import Dialect
from core.engine.sampling import SamplingParams
from core.frontend.answering.reader import AnswerReader
from core.frontend.request import GenerationRequest
from core.frontend.results import CompletionOutput
from core.server.answers import json_answer
from core.server.dialect import error_object
from core.server.entry import open_chat, render_alone
from core.server.logprobs import ShownTokens, chat_logprobs
from core.server.openai.params import interval, tokens_as_ids
from core.server.openai.responses import background
from core.server.openai.responses.answer import Answer
from core.server.openai.responses.ask import Asked, read_asked
from core.server.openai.responses.composer import Composer
from core.server.openai.responses.items import new_id
from core.server.openai.responses.job import ResponseJob, ResponseWork, stream_dialect
from core.server.openai.responses.mcp.job import RemoteJob, all_lists
from core.server.openai.responses.mcp.turns import Turns
from core.server.openai.responses.output import Score
from core.server.openai.responses.params import call_limit, repeated
from core.server.openai.responses.protocol import ResponsesBody
from core.server.openai.responses.store import Record, ResponseStore
from core.server.openai.responses.truncate import fitted
from core.server.remote.sessions import RemoteSessions
from core.server.rendered import rendered
from core.server.state import ServerState
from core.server.streaming import JobResponse


async def create(state: ServerState, request: Request) -> Response:
    """Validate, render, and hand the generation to a response that runs it, or to the background."""
    asked = await read_asked(state, request)
    job: ResponseWork = remote_job(state, asked) if asked.tools.servers else await _job(state, asked)
    record = Record(job.answer, asked.earlier, asked.items)
    stream = bool(asked.body.stream)
    if asked.body.background:
        state.responses.admit()
        background.start(state.lifecycle, state.responses, record, job)
        followed = background.Follower(record)
        return JobResponse(state.lifecycle, followed, stream=stream, headers=asked.headers, dialect=SILENT)
    if asked.kept:
        job.on_end = lambda: _keep(state.responses, record)
    return JobResponse(state.lifecycle, job, stream=stream, headers=asked.headers, dialect=stream_dialect(job))


async def count_tokens(state: ServerState, request: Request) -> Response:
    """Return how many tokens a request's input has."""
    asked, wanted = await _wanted(state, request)
    answer = {"object": "response.input_tokens", "input_tokens": len(await render_alone(state, wanted))}
    return json_answer(answer, asked.headers)


async def render_response(state: ServerState, request: Request) -> Response:
    """Return what the engine would be sent first; nothing is generated."""
    asked, wanted = await _wanted(state, request)
    return json_answer(await rendered(state, wanted), asked.headers)


def remote_job(state: ServerState, asked: Asked) -> ResponseWork:
    """Return a job that asks its MCP servers before it asks the model."""
    body, params, name = asked.body, asked.request.params, new_id("resp")
    state.admit(params.n)
    sessions, rounds = _sessions(state, asked)
    return RemoteJob(
        Turns(state, name, params.max_tokens, body.truncation == "auto", interval(body, state)),
        _answer(state, asked, params, name),
        Composer(show_ids=bool(body.return_token_ids)),
        AnswerReader(None, calls=False),  # of the first turn, which brings its own
        _scores(state, body, params),
        asked=asked,
        sessions=sessions,
        rounds=rounds,
    )


async def _job(state: ServerState, asked: Asked) -> ResponseJob:
    body, name = asked.body, new_id("resp")
    wanted = await fitted(state, asked.request) if body.truncation == "auto" else asked.request
    chat = await open_chat(state, wanted, name, interval=interval(body, state))
    params = chat.generation.params
    composer = Composer(
        max_calls=call_limit(body),
        call_id=chat.answer.call_id if chat.answer.parser else None,
        show_ids=bool(body.return_token_ids),
        make_call=asked.tools.open_call,
    )
    scores = _scores(state, body, params)
    return ResponseJob(chat.generation, _answer(state, asked, params, name), composer, chat.answer.reader(), scores)


async def _wanted(state: ServerState, request: Request) -> tuple[Asked, GenerationRequest]:
    """Return what is asked for, and the request of the first turn, with the tools that its MCP servers list."""
    asked = await read_asked(state, request)
    if not asked.tools.servers:
        return asked, asked.request
    sessions, _ = _sessions(state, asked)
    try:
        lists = await all_lists(asked, sessions)
    finally:
        await sessions.close()
    tools = asked.tools.with_lists(lists)
    return asked, asked.turn([], tools, tools.choice, asked.request.params.max_tokens)


def _keep(store: ResponseStore, record: Record) -> None:
    """Keep a response that has ended, and let it say so; one that is larger than the store is not kept."""
    store.put(record)
    record.answer.stored = record in store


def _sessions(state: ServerState, asked: Asked) -> tuple[RemoteSessions, int]:
    remote = state.remote
    if remote is None:
        raise TypeError("requests with MCP servers are refused where there are none")
    return RemoteSessions(remote, {one.label: one.endpoint for one in asked.tools.servers}), remote.rounds


def _answer(state: ServerState, asked: Asked, params: SamplingParams, name: str) -> Answer:
    ids: list[int] | None = [] if asked.body.return_token_ids else None
    said = repeated(asked.body, params, asked.tools)
    return Answer(name, state.llm.model_name, said, prompt_ids=ids, stored=asked.kept)


def _scores(
    state: ServerState, body: ResponsesBody, params: SamplingParams
) -> Callable[[CompletionOutput], Sequence[Score]] | None:
    top = params.logprobs
    if top is None:
        return None
    as_ids = tokens_as_ids(body, state)
    tokens = ShownTokens(state.llm.tokenizer, as_ids=as_ids, skip_special=params.skip_special_tokens)
    return lambda sequence: chat_logprobs(sequence.token_ids, sequence.logprobs or (), tokens, top)


SILENT = Dialect(error_object)
"""How streams of the past end: their last event is the response's own."""
