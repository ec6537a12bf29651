"""`GET /v1/models` and `GET /v1/models/{id}`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core.server.answers import json_answer
from core.server.state import ServerState


async def list_models(state: ServerState, request: Request) -> Response:
    """Return all models: one."""
    return json_answer({"object": "list", "data": [_card(state)]})


async def get_model(state: ServerState, request: Request) -> Response:
    """Return a model by its id, which may contain slashes."""
    state.check_model(request.path_params["model"])
    return json_answer(_card(state))


def _card(state: ServerState) -> dict[str, Any]:
    return {
        "id": state.llm.model_name,
        "object": "model",
        "created": state.created,
        "owned_by": "core",
        "max_model_len": state.llm.max_model_len,
    }
