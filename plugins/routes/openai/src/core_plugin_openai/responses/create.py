"""`POST /v1/responses` and `POST /v1/responses/input_tokens`."""

from __future__ import annotations

from core_plugin_tool_servers.sessions import RemoteSessions

from core.api import Answer as Generation
from core.api import ChatRequest, EngineClient, Reply, RouteRequest, RouteResponse
from core_plugin_openai.params import tokens_as_ids
from core_plugin_openai.responses import background
from core_plugin_openai.responses.answer import Answer
from core_plugin_openai.responses.ask import Asked, read_asked
from core_plugin_openai.responses.composer import Composer
from core_plugin_openai.responses.dialects import SILENT, stream_dialect
from core_plugin_openai.responses.items import new_id
from core_plugin_openai.responses.job import ResponseJob, ResponseWork
from core_plugin_openai.responses.mcp.job import RemoteJob, all_lists
from core_plugin_openai.responses.mcp.turns import Turns
from core_plugin_openai.responses.params import call_limit, repeated
from core_plugin_openai.responses.shared import Shared
from core_plugin_openai.responses.store import Record, ResponseStore
from core_plugin_openai.responses.truncate import fitted
from core_plugin_openai.routes import json_response


async def create(shared: Shared, request: RouteRequest) -> Reply:
    """Validate, render, and hand the generation to a response that runs it, or to the background."""
    asked = await read_asked(shared, request)
    client, store = shared.client, shared.store
    job: ResponseWork = remote_job(shared, asked) if asked.tools.servers else await _job(client, asked)
    record = Record(job.answer, asked.earlier, asked.items)
    stream = bool(asked.body.stream)
    if asked.body.background:
        store.admit()
        background.start(client, store, record, job)
        return Reply(background.Follower(record), stream, asked.headers, dialect=SILENT)
    if asked.kept:
        job.on_end = lambda: _keep(store, record)
    return Reply(job, stream, asked.headers, dialect=stream_dialect(job))


async def count_tokens(shared: Shared, request: RouteRequest) -> RouteResponse:
    """Return how many tokens a request's input has."""
    asked, wanted = await _wanted(shared, request)
    ids = await shared.client.render(wanted)
    return json_response({"object": "response.input_tokens", "input_tokens": len(ids)}, asked.headers)


async def render_response(shared: Shared, request: RouteRequest) -> RouteResponse:
    """Return what the engine would be sent first; nothing is generated."""
    asked, wanted = await _wanted(shared, request)
    (shown,) = await shared.client.describe(wanted)
    return json_response(shown, asked.headers)


def remote_job(shared: Shared, asked: Asked) -> RemoteJob:
    """Return a job that asks its MCP servers before it asks the model."""
    client, body, name = shared.client, asked.body, new_id("resp")
    client.admit()
    sessions, rounds = _sessions(shared, asked)
    return RemoteJob(
        Turns(client, name, asked.request.sampling["max_tokens"], body.truncation == "auto"),
        _answer(client, asked, name),
        Composer(show_ids=bool(body.return_token_ids)),
        _as_ids(client, asked),
        asked=asked,
        sessions=sessions,
        rounds=rounds,
    )


async def _job(client: EngineClient, asked: Asked) -> ResponseJob:
    body, name = asked.body, new_id("resp")
    client.admit()  # before any work is done for it
    wanted = await fitted(client, asked.request) if body.truncation == "auto" else asked.request
    generation: Generation = await client.open(wanted, prefix="resp", name=name)
    composer = Composer(
        max_calls=call_limit(body),
        call_id=generation.call_id,
        show_ids=bool(body.return_token_ids),
        make_call=asked.tools.open_call,
    )
    return ResponseJob(generation, _answer(client, asked, name), composer, _as_ids(client, asked))


async def _wanted(shared: Shared, request: RouteRequest) -> tuple[Asked, ChatRequest]:
    """Return what is asked for, and the request of the first turn, with the tools that its MCP servers list."""
    asked = await read_asked(shared, request)
    if not asked.tools.servers:
        return asked, asked.request
    sessions, _ = _sessions(shared, asked)
    try:
        lists = await all_lists(asked, sessions)
    finally:
        await sessions.close()
    tools = asked.tools.with_lists(lists)
    return asked, asked.turn([], tools, tools.choice, asked.request.sampling["max_tokens"])


def _keep(store: ResponseStore, record: Record) -> None:
    """Keep a response that has ended, and let it say so; one that is larger than the store is not kept."""
    store.put(record)
    record.answer.stored = record in store


def _sessions(shared: Shared, asked: Asked) -> tuple[RemoteSessions, int]:
    servers = shared.servers
    if servers is None:
        raise TypeError("requests with MCP servers are refused where there are none")
    return servers.connect({one.label: one.endpoint for one in asked.tools.servers}), servers.rounds


def _answer(client: EngineClient, asked: Asked, name: str) -> Answer:
    ids: list[int] | None = [] if asked.body.return_token_ids else None
    said = repeated(asked.body, client.defaults, asked.tools)
    return Answer(name, client.model_name, said, prompt_ids=ids, stored=asked.kept)


def _as_ids(client: EngineClient, asked: Asked) -> bool:
    return tokens_as_ids(asked.body, client.settings["return_tokens_as_token_ids"])
