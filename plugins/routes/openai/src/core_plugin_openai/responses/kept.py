"""Responses that are kept: read, followed, listed, cancelled, forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.api import Reply, RequestError, RouteRequest, RouteResponse
from core.api.bodies import invalid
from core_plugin_openai.responses import background
from core_plugin_openai.responses.dialects import SILENT
from core_plugin_openai.responses.items import Item
from core_plugin_openai.responses.store import Record, ResponseStore
from core_plugin_openai.routes import json_response

DEFAULT_PAGE, LARGEST_PAGE = 20, 100
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


async def read(store: ResponseStore, request: RouteRequest) -> RouteResponse | Reply:
    """Return a response as it is, or its events from `starting_after` on."""
    record, query = _record(store, request), request.query
    stream = _flag(query, "stream")
    if "starting_after" in query and not stream:
        raise invalid("starting_after", "needs stream=true")
    if not stream:
        return json_response(record.answer.to_dict())
    if not record.background:
        message = "Only the events of a response that was made in the background can be had again."
        raise RequestError(message, param="stream", code="response_not_background")
    start = _number(query, "starting_after", -1, 0, len(record.log) - 1) + 1
    follower = background.Follower(record, start)
    return Reply(follower, stream=True, dialect=SILENT)


async def input_items(store: ResponseStore, request: RouteRequest) -> RouteResponse:
    """Return a page of a response's own input items, the last ones first."""
    record, query = _record(store, request), request.query
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise invalid("order", "must be asc or desc")
    limit = _number(query, "limit", DEFAULT_PAGE, 1, LARGEST_PAGE)
    items = list(record.input) if order == "asc" else list(reversed(record.input))
    return json_response(_page(items, query.get("after"), limit))


async def cancel(store: ResponseStore, request: RouteRequest) -> RouteResponse:
    """End a response that is being made in the background, and return it."""
    record = _record(store, request)
    if not record.background:
        message = "Only responses that are made in the background can be cancelled; close the connection of others."
        raise RequestError(message, code="response_not_background")
    await background.cancel(record)
    return json_response(record.answer.to_dict())


async def delete(store: ResponseStore, request: RouteRequest) -> RouteResponse:
    """Forget a response; one that is being made is ended."""
    record = store.drop(request.path_params["response_id"])
    await background.cancel(record)
    return json_response({"id": record.answer.id, "object": "response", "deleted": True})


def _record(store: ResponseStore, request: RouteRequest) -> Record:
    return store.get(request.path_params["response_id"])


def _page(items: Sequence[Item], after: str | None, limit: int) -> dict[str, Any]:
    begin = 0
    if after is not None:
        found = next((at for at, item in enumerate(items) if item["id"] == after), None)
        if found is None:
            raise RequestError(f"after: there is no input item '{after[:100]}'.", param="after")
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
