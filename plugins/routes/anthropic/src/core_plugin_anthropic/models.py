"""`GET /v1/models` and `GET /v1/models/{id}`, for clients of the Messages API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from core.api import EngineClient, RouteRequest, RouteResponse


def list_models(client: EngineClient, request: RouteRequest) -> RouteResponse:
    """Return a page of all models: of one, or none behind or in front of it."""
    name = client.model_name
    beyond = name in (request.query.get("after_id"), request.query.get("before_id"))
    data = [] if beyond else [_card(client)]
    ends = dict.fromkeys(("first_id", "last_id"), None if beyond else name)
    return RouteResponse(orjson.dumps({"data": data, "has_more": False, **ends}))


def get_model(client: EngineClient, request: RouteRequest) -> RouteResponse:
    """Return a model by its id. Raises `RequestError` 404."""
    client.check_model(request.path_params["model"])
    return RouteResponse(orjson.dumps(_card(client)))


def _card(client: EngineClient) -> dict[str, Any]:
    nothing = dict.fromkeys(("capabilities", "deprecated_at", "retires_at", "line"))
    return {
        "type": "model",
        "id": client.model_name,
        "display_name": client.model_name,
        "created_at": datetime.fromtimestamp(client.created, UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "max_input_tokens": client.max_model_len,
        "max_tokens": client.max_model_len,
        **nothing,
    }
