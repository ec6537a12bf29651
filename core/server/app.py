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
from core.frontend.answering.parsing import AnswerParser
from core.server.admin.routes import admin_routes
from core.server.anthropic.models import AnthropicModelRoutes, by_client
from core.server.anthropic.routes import message_routes
from core.server.browsers import Browsers
from core.server.edge import check_origins
from core.server.errors import as_api_error
from core.server.gate import Gate
from core.server.health import HealthRoutes
from core.server.interface import ServedLLM
from core.server.metrics import Metrics
from core.server.openai.chat import ChatRoute
from core.server.openai.completions import CompletionRoute
from core.server.openai.models import ModelRoutes
from core.server.openai.protocol import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from core.server.openai.rendering import RenderRoutes
from core.server.openai.responses.routes import response_routes
from core.server.openai.tokenize import TokenizeRoutes
from core.server.openai.tokenizer_info import TokenizerInfoRoute
from core.server.plugged import PluggedRoute, check_free
from core.server.plugged_answer import PluggedEndpoint
from core.server.pooling.routes import Route, generating, pooling_routes
from core.server.prefix import Prefix
from core.server.resume.layer import ResumeLayer
from core.server.resume.routes import StreamRoutes
from core.server.resume.store import StreamStore
from core.server.state import ServerState

Endpoint = Callable[[Request], Awaitable[Response]]

JSON = "application/json"
STREAMED = frozenset({("GET", "/v1/responses/{response_id}"), ("GET", "/v1/stream/{name}")})
"""Routes without a body that answer with events when they are asked for them."""


class Api(FastAPI):
    """The application; the schemas of bodies are made when somebody asks, as they take longer than all else here."""

    def openapi(self) -> dict[str, Any]:
        """Return the schema, made once."""
        for extra, body in self.state.bodies:
            content = {JSON: {"schema": inline_refs(body.model_json_schema())}}
            extra["requestBody"] = {"required": True, "content": content}
        self.state.bodies.clear()
        return super().openapi()


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
    servers = [{"url": prefix}] if (prefix := options.server.root_path) else None
    app = Api(title="core", version=__version__, docs_url=None, redoc_url=None, servers=servers)
    app.state.core, app.state.bodies = state, []
    _add_routes(app, state)
    _add_resume(app, state)
    check_free(plugged, app.routes)
    state.public_paths |= {route.path for route in plugged if route.public}
    for route in plugged:
        app.add_api_route(
            route.path,
            PluggedEndpoint(route, state).__call__,
            methods=list(route.methods),
            summary=route.summary or f"{route.method} {route.path}",
            response_class=Response,
        )
    app.add_exception_handler(HTTPException, _render)
    app.add_middleware(Gate, state=state)
    _add_edge(app, state)
    return app


def _add_edge(app: FastAPI, state: ServerState) -> None:
    """Add what stands outside the gate, where it was asked for; the last one added is the outermost."""
    server = state.options.server
    check_origins(server)
    if server.allowed_origins:
        app.add_middleware(Browsers, state=state)
    if server.root_path:
        app.add_middleware(Prefix, prefix=server.root_path)


def _add_routes(app: FastAPI, state: ServerState) -> None:
    health, models, tokens = HealthRoutes(state), ModelRoutes(state), TokenizeRoutes(state)
    texts: list[Route] = [
        ("POST", "/v1/chat/completions", ChatRoute(state).__call__, ChatBody),
        ("POST", "/v1/completions", CompletionRoute(state).__call__, CompletionBody),
    ]
    texts += [*response_routes(state), *message_routes(state), *_render_routes(state)]
    for route in (*generating(state, texts), *pooling_routes(state)):
        _add(app, *route)
    theirs = AnthropicModelRoutes(state)
    _add(app, "GET", "/v1/models", by_client(models.list, theirs.list))
    _add(app, "GET", "/v1/models/{model:path}", by_client(models.one, theirs.one))
    _add(app, "POST", "/tokenize", tokens.tokenize, TokenizeBody)
    _add(app, "POST", "/detokenize", tokens.detokenize, DetokenizeBody)
    _add(app, "GET", "/tokenizer_info", TokenizerInfoRoute(state).__call__)
    _add(app, "GET", "/health", health.health)
    for method in ("GET", "POST"):
        _add(app, method, "/ping", health.health)
    _add(app, "GET", "/ready", health.ready)
    _add(app, "GET", "/load", health.load)
    _add(app, "GET", "/version", health.version)
    _add(app, "GET", "/metrics", health.metrics)
    _add(app, "GET", "/core/plugins", health.plugins)
    for route in admin_routes(state):
        state.admin_paths.add(route.path)
        _add(app, *route)


def _render_routes(state: ServerState) -> list[Route]:
    rendering = RenderRoutes(state)
    return [
        ("POST", "/apply-template", rendering.template, ChatBody),
        ("POST", "/v1/chat/completions/render", rendering.chat, ChatBody),
        ("POST", "/v1/completions/render", rendering.completion, CompletionBody),
    ]


def _add_resume(app: FastAPI, state: ServerState) -> None:
    """Add what continues streams; the list of all of them is the admin's, as an id is all it takes to read one."""
    server = state.options.server
    state.streams = StreamStore(server.resume_seconds, server.resume_bytes) if server.resume_seconds else None
    streams = StreamRoutes(state.streams)
    state.admin_paths.add("/v1/streams")
    _add(app, "GET", "/v1/streams", streams.list)
    _add(app, "GET", "/v1/stream/{name}", streams.read)
    _add(app, "DELETE", "/v1/stream/{name}", streams.delete)
    if state.streams is not None:
        app.add_middleware(ResumeLayer, store=state.streams)


def _add(app: FastAPI, method: str, path: str, endpoint: Endpoint, body: type[BaseModel] | None = None) -> None:
    """Add a route that reads its own body (bounded, strict); the schema is told to clients all the same."""
    extra: dict[str, Any] = {"responses": _responses(method, path, body)}
    if body is not None:
        app.state.bodies.append((extra, body))
    summary = f"{method} {path}"  # else the schema would show the name of a Python function
    app.add_api_route(path, endpoint, methods=[method], summary=summary, openapi_extra=extra, response_class=Response)


def _responses(method: str, path: str, body: type[BaseModel] | None) -> dict[str, Any]:
    """Say which content types a route answers with; errors are JSON."""
    types = ["text/plain"] if path == "/metrics" else [JSON]
    if (body is not None and "stream" in body.model_fields) or (method, path) in STREAMED:
        types.append("text/event-stream")
    if body is not None and "encoding_format" in body.model_fields:
        types.append("application/octet-stream")
    return {
        "200": {"description": "The answer.", "content": {kind: {} for kind in types}},
        "default": {"description": "An error.", "content": {JSON: {}}},
    }


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
    state: ServerState = request.app.state.core
    return state.dialect(request.url.path, request.scope["headers"]).response(as_api_error(error))
