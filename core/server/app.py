"""The application: routes over a generation front end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from core import __version__
from core.config.resolved import Options
from core.server.errors import as_api_error
from core.server.gate import Gate
from core.server.health import HealthRoutes
from core.server.interface import ServedLLM
from core.server.metrics import Metrics
from core.server.openai.chat import ChatRoute
from core.server.openai.completions import CompletionRoute
from core.server.openai.models import ModelRoutes
from core.server.openai.protocol import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from core.server.openai.tokenize import TokenizeRoutes
from core.server.parsing import AnswerParser
from core.server.plugged import PluggedEndpoint, PluggedRoute
from core.server.state import ServerState

Endpoint = Callable[[Request], Awaitable[Response]]


def create_app(
    llm: ServedLLM,
    options: Options,
    *,
    parser: AnswerParser | None = None,
    reports: Sequence[Any] = (),
    defaults: Mapping[str, Any] | None = None,
    plugged: Sequence[PluggedRoute] = (),
) -> FastAPI:
    """Return the application.

    Args:
        llm: Generates.
        options: Limits, key and logging.
        parser: Reads tool calls and reasoning in chat output.
        reports: How plugins were selected, for `GET /core/plugins`.
        defaults: Sampling parameters used where a request leaves them out.
        plugged: Routes of plugins.
    """
    state = ServerState(llm, options, Metrics(llm), parser, defaults or {}, reports)
    # The interactive pages would load scripts from elsewhere; the schema itself is served (and needs the key).
    app = FastAPI(title="core", version=__version__, docs_url=None, redoc_url=None)
    app.state.core = state
    _add_routes(app, state)
    for route in plugged:
        app.add_api_route(
            route.path,
            PluggedEndpoint(route, state).__call__,
            methods=[route.method],
            summary=route.summary or None,
            response_class=Response,
        )
    app.add_exception_handler(HTTPException, _render)
    app.add_middleware(Gate, state=state)
    return app


def _add_routes(app: FastAPI, state: ServerState) -> None:
    health, models, tokens = HealthRoutes(state), ModelRoutes(state), TokenizeRoutes(state)
    _add(app, "POST", "/v1/chat/completions", ChatRoute(state).__call__, ChatBody)
    _add(app, "POST", "/v1/completions", CompletionRoute(state).__call__, CompletionBody)
    _add(app, "GET", "/v1/models", models.list)
    _add(app, "GET", "/v1/models/{model:path}", models.one)
    _add(app, "POST", "/tokenize", tokens.tokenize, TokenizeBody)
    _add(app, "POST", "/detokenize", tokens.detokenize, DetokenizeBody)
    _add(app, "GET", "/health", health.health)
    _add(app, "GET", "/ready", health.ready)
    _add(app, "GET", "/version", health.version)
    _add(app, "GET", "/metrics", health.metrics)
    _add(app, "GET", "/core/plugins", health.plugins)


def _add(app: FastAPI, method: str, path: str, endpoint: Endpoint, body: type[BaseModel] | None = None) -> None:
    """Add a route that reads its own body (bounded, strict); the schema is told to clients all the same."""
    extra = None
    if body is not None:
        content = {"application/json": {"schema": inline_refs(body.model_json_schema())}}
        extra = {"requestBody": {"required": True, "content": content}}
    app.add_api_route(path, endpoint, methods=[method], openapi_extra=extra, response_class=Response)


def inline_refs(schema: dict[str, Any]) -> dict[str, Any]:
    """Put definitions where they are referred to: `#/$defs/` means nothing inside an OpenAPI document."""
    definitions = schema.pop("$defs", {})

    def resolved(node: Any) -> Any:
        if isinstance(node, list):
            return [resolved(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return resolved(definitions[node["$ref"].rpartition("/")[2]])
        return {name: resolved(value) for name, value in node.items()}

    return {name: resolved(value) for name, value in schema.items()}


async def _render(request: Request, error: Exception) -> Response:
    return as_api_error(error).response()
