"""Responses that are kept: read, followed, listed, cancelled, forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core.api.bodies import invalid
from core.server.answers import json_answer
from core.server.errors import ApiError
from core.server.openai.responses import background
from core.server.openai.responses.create import SILENT
from core.server.openai.responses.items import Item
from core.server.openai.responses.store import Record
from core.server.state import ServerState
from core.server.streaming import JobResponse

DEFAULT_PAGE, LARGEST_PAGE = 20, 100
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


async def read(state: ServerState, request: Request) -> Response:
    """Return a response as it is, or its events from `starting_after` on."""
    record, query = _record(state, request), request.query_params
    stream = _flag(query, "stream")
    if "starting_after" in query and not stream:
        raise invalid("starting_after", "needs stream=true")
    if not stream:
        return json_answer(record.answer.to_dict())
    if not record.background:
        message = "Only the events of a response that was made in the background can be had again."
        raise ApiError(400, message, param="stream", code="response_not_background")
    start = _number(query, "starting_after", -1, 0, len(record.log) - 1) + 1
    follower = background.Follower(record, start)
    return JobResponse(state.lifecycle, follower, stream=True, headers={}, dialect=SILENT)


async def input_items(state: ServerState, request: Request) -> Response:
    """Return a page of a response's own input items, the last ones first."""
    record, query = _record(state, request), request.query_params
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise invalid("order", "must be asc or desc")
    limit = _number(query, "limit", DEFAULT_PAGE, 1, LARGEST_PAGE)
    items = list(record.input) if order == "asc" else list(reversed(record.input))
    return json_answer(_page(items, query.get("after"), limit))


async def cancel(state: ServerState, request: Request) -> Response:
    """End a response that is being made in the background, and return it."""
    record = _record(state, request)
    if not record.background:
        message = "Only responses that are made in the background can be cancelled; close the connection of others."
        raise ApiError(400, message, code="response_not_background")
    await background.cancel(record)
    return json_answer(record.answer.to_dict())


async def delete(state: ServerState, request: Request) -> Response:
    """Forget a response; one that is being made is ended."""
    record = state.responses.drop(request.path_params["response_id"])
    await background.cancel(record)
    return json_answer({"id": record.answer.id, "object": "response", "deleted": True})


def _record(state: ServerState, request: Request) -> Record:
    return state.responses.get(request.path_params["response_id"])


def _page(items: Sequence[Item], after: str | None, limit: int) -> dict[str, Any]:
    begin = 0
    if after is not None:
        found = next((at for at, item in enumerate(items) if item["id"] == after), None)
        if found is None:
            raise ApiError(400, f"after: there is no input item '{after[:100]}'.", param="after")
        begin = found + 1
    page = items[begin : begin + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else "",
        "last_id": page[-1]["id"] if page else "",
        "has_more": begin + limit < len(items),
    }


def _flag(query: Mapping[str, str], name: str) -> bool:
    value = _FLAGS.get(query.get(name, "false").lower())
    if value is None:
        raise invalid(name, "must be true or false")
    return value


def _number(query: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    # Longer digit strings are out of range anyway, and int() refuses the longest with an error of its own.
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not low <= value <= high:
        raise invalid(name, f"must be a number from {low} to {high}")
    return value
