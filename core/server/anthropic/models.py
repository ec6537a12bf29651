"""`GET /v1/models` and `GET /v1/models/{id}`, for clients of the Messages API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core.server.answers import json_answer
from core.server.anthropic.routes import VERSION_HEADER
from core.server.state import ServerState

Endpoint = Callable[[Request], Awaitable[Response]]


class AnthropicModelRoutes:
    """Names the model that is served, in Anthropic's form."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def list(self, request: Request) -> Response:
        """Return a page of all models: of one, or none behind or in front of it."""
        name = self._state.llm.model_name
        beyond = name in (request.query_params.get("after_id"), request.query_params.get("before_id"))
        data = [] if beyond else [self._card()]
        ends = dict.fromkeys(("first_id", "last_id"), None if beyond else name)
        return json_answer({"data": data, "has_more": False, **ends})

    async def one(self, request: Request) -> Response:
        """Return a model by its id."""
        self._state.check_model(request.path_params["model"])
        return json_answer(self._card())

    def _card(self) -> dict[str, Any]:
        llm = self._state.llm
        nothing = dict.fromkeys(("capabilities", "deprecated_at", "retires_at", "line"))
        return {
            "type": "model",
            "id": llm.model_name,
            "display_name": llm.model_name,
            "created_at": datetime.fromtimestamp(self._state.created, UTC).isoformat().replace("+00:00", "Z"),
            "lifecycle": "active",
            "max_input_tokens": llm.max_model_len,
            "max_tokens": llm.max_model_len,
            **nothing,
        }


def by_client(others: Endpoint, anthropics: Endpoint) -> Endpoint:
    """Return an endpoint that answers clients of the Messages API as they expect it, and others as `others` does."""

    async def endpoint(request: Request) -> Response:
        theirs = VERSION_HEADER.decode() in request.headers
        return await (anthropics if theirs else others)(request)

    return endpoint
