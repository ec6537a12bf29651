"""`GET /v1/models` and `GET /v1/models/{id}`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core.server.answers import json_answer
from core.server.state import ServerState


class ModelRoutes:
    """Names the model that is served."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def list(self, request: Request) -> Response:
        """Return all models: one."""
        return json_answer({"object": "list", "data": [self._card()]})

    async def one(self, request: Request) -> Response:
        """Return a model by its id, which may contain slashes."""
        self._state.check_model(request.path_params["model"])
        return json_answer(self._card())

    def _card(self) -> dict[str, Any]:
        llm = self._state.llm
        return {
            "id": llm.model_name,
            "object": "model",
            "created": self._state.created,
            "owned_by": "core",
            "max_model_len": llm.max_model_len,
        }
