"""`/pause`, `/resume`, `/is_paused`, `/drain`, `/abort_requests`, `/reset_prefix_cache`."""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.responses import Response

from core.server.admin.bodies import AbortBody, AdminBody, PauseBody, read_admin
from core.server.answers import json_answer
from core.server.errors import ApiError
from core.server.state import ServerState

logger = logging.getLogger(__name__)


async def pause(state: ServerState, request: Request) -> Response:
    """Hold new requests back; answer once the engine rests. See `AsyncLLM.pause_generation`."""
    body = await read_admin(request, PauseBody)
    if state.lifecycle.draining:
        raise ApiError(503, "The server is shutting down: what it held back would wait in vain.", code="draining")
    logger.warning("paused (%s) by an admin request", body.mode)
    await state.llm.pause_generation(body.mode, clear_cache=body.clear_cache)
    return json_answer({"status": "paused"})


async def resume(state: ServerState, request: Request) -> Response:
    """Let requests pass again."""
    await read_admin(request, AdminBody)
    await state.llm.resume_generation()
    logger.warning("resumed by an admin request")
    return json_answer({"status": "resumed"})


async def is_paused(state: ServerState, request: Request) -> Response:
    """Say whether new requests are held back."""
    return json_answer({"is_paused": state.llm.paused})


async def drain(state: ServerState, request: Request) -> Response:
    """Begin the server's end, as the first SIGTERM does; harmless when it has begun."""
    await read_admin(request, AdminBody)
    if not state.lifecycle.draining:
        logger.warning("the server ends by an admin request")
        state.lifecycle.drain()
    seconds = state.options.server.drain_timeout
    return json_answer({"status": "draining", "in_flight": len(state.lifecycle.work), "at_most_s": seconds})


async def abort_requests(state: ServerState, request: Request) -> Response:
    """End requests; their clients get what there is, with finish reason `abort`."""
    body = await read_admin(request, AbortBody)
    if body.abort_all == bool(body.request_ids):
        raise ApiError(400, "Give either request_ids or abort_all.", param="request_ids")
    running = {name: _answer_id(state, name) for name in state.llm.request_ids}
    chosen = [name for name, shown in running.items() if body.abort_all or shown in body.request_ids]
    for name in chosen:
        await state.llm.abort(name)
    found = dict.fromkeys(running[name] for name in chosen)
    return json_answer({"aborted": list(found), "unknown": [name for name in body.request_ids if name not in found]})


async def reset_prefix_cache(state: ServerState, request: Request) -> Response:
    """Forget the KV blocks of finished requests; running ones keep theirs."""
    await read_admin(request, AdminBody)
    await state.llm.call("reset_prefix_cache")
    return json_answer({"success": True})


def _answer_id(state: ServerState, name: str) -> str:
    """Return the id of the answer that a request in flight belongs to.

    One answer may be several requests: of its prompts, and of the sequences of a beam search, which have numbers behind
    the name.
    """
    base = name
    while base not in state.shown:
        base, _, number = base.rpartition("-")
        if not number.isdigit():
            return name
    return state.shown[base]
