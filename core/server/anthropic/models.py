"""`GET /v1/models` and `GET /v1/models/{id}`, for clients of the Messages API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core.server.answers import json_answer
from core.server.anthropic.routes import VERSION_HEADER
from core.server.routes import Endpoint
from core.server.state import ServerState


async def list_models(state: ServerState, request: Request) -> Response:
    """Return a page of all models: of one, or none behind or in front of it."""
    name = state.llm.model_name
    beyond = name in (request.query_params.get("after_id"), request.query_params.get("before_id"))
    data = [] if beyond else [_card(state)]
    ends = dict.fromkeys(("first_id", "last_id"), None if beyond else name)
    return json_answer({"data": data, "has_more": False, **ends})


async def get_model(state: ServerState, request: Request) -> Response:
    """Return a model by its id."""
    state.check_model(request.path_params["model"])
    return json_answer(_card(state))


def by_client(others: Endpoint, anthropics: Endpoint) -> Endpoint:
    """Return an endpoint that answers clients of the Messages API as they expect it, and others as `others` does."""

    async def endpoint(state: ServerState, request: Request) -> Response:
        theirs = VERSION_HEADER.decode() in request.headers
        return await (anthropics if theirs else others)(state, request)

    return endpoint


def _card(state: ServerState) -> dict[str, Any]:
    llm = state.llm
    nothing = dict.fromkeys(("capabilities", "deprecated_at", "retires_at", "line"))
    return {
        "type": "model",
        "id": llm.model_name,
        "display_name": llm.model_name,
        "created_at": datetime.fromtimestamp(state.created, UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "max_input_tokens": llm.max_model_len,
        "max_tokens": llm.max_model_len,
        **nothing,
    }
