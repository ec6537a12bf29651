"""The application: routes over a generation front end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from core import __version__
from core.config.resolved import Options
from core.frontend.answering.parsing import AnswerParser
from core.server.account import note_error
from core.server.admin import routes as admin
from core.server.answers import JSON
from core.server.anthropic import models as anthropic_models
from core.server.anthropic import routes as messages
from core.server.anthropic.errors import ANTHROPIC
from core.server.browsers import Browsers
from core.server.edge import check_origins
from core.server.errors import as_api_error
from core.server.gate import Gate
from core.server.health import METRICS
from core.server.health import ROUTES as HEALTH
from core.server.interface import ServedLLM
from core.server.metrics import Metrics
from core.server.openai import models, rendering, tokenize
from core.server.openai.chat import chat_completions
from core.server.openai.completions import completions
from core.server.openai.protocol import ChatBody, CompletionBody
from core.server.openai.responses import routes as responses
from core.server.plain_route import PlainRoute
from core.server.plugged import PluggedRoute, check_free
from core.server.plugged_answer import PluggedEndpoint
from core.server.pooling import routes as pooling
from core.server.prefix import Prefix
from core.server.resume import routes as resume
from core.server.resume.layer import ResumeLayer
from core.server.routes import Route
from core.server.state import ServerState

GENERATING = (
    Route("POST", "/v1/chat/completions", chat_completions, ChatBody),
    Route("POST", "/v1/completions", completions, CompletionBody),
    *responses.ROUTES,
    *messages.ROUTES,
    *rendering.ROUTES,
)
"""Routes that answer 400 where the model gives vectors instead."""

OTHERS = (
    *pooling.ROUTES,
    Route("GET", "/v1/models", anthropic_models.by_client(models.list_models, anthropic_models.list_models)),
    Route("GET", "/v1/models/{model:path}", anthropic_models.by_client(models.get_model, anthropic_models.get_model)),
    *tokenize.ROUTES,
    *HEALTH,
    *resume.ROUTES,
)

ADMIN = (*admin.ROUTES, resume.ALL_STREAMS)

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
    state = ServerState(llm, options, Metrics(llm, options.server.metrics_compat), parser, defaults or {}, reports)
    # The interactive pages would load scripts from elsewhere; the schema itself is served (and needs the key).
    servers = [{"url": prefix}] if (prefix := options.server.root_path) else None
    app = Api(title="core", version=__version__, docs_url=None, redoc_url=None, servers=servers)
    app.router.route_class = PlainRoute
    app.state.core, app.state.bodies = state, []
    state.mounted_dialects[messages.PATH] = ANTHROPIC  # also for what there is not, such as batches
    state.client_dialects[messages.VERSION_HEADER] = ANTHROPIC
    state.admin_paths |= {route.path for route in ADMIN}
    if options.server.public_metrics:
        state.public_paths.add(METRICS)
    pools = llm.pooling is not None
    for route in GENERATING:
        _add(app, state, route._replace(endpoint=pooling.refuse_generation) if pools else route)
    for route in (*OTHERS, *ADMIN):
        _add(app, state, route)
    _add_plugged(app, state, plugged)
    if state.streams is not None:
        app.add_middleware(ResumeLayer, store=state.streams)
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


def _add(app: FastAPI, state: ServerState, route: Route) -> None:
    """Add a route; the schema of the body that it reads itself is told to clients all the same."""

    async def endpoint(request: Request) -> Response:
        return await route.endpoint(state, request)

    extra: dict[str, Any] = {"responses": _responses(route)}
    if route.body is not None:
        app.state.bodies.append((extra, route.body))
    app.add_api_route(
        route.path,
        endpoint,
        methods=[route.method],
        name=route.endpoint.__name__,
        summary=f"{route.method} {route.path}",  # else the schema would show the name of a Python function
        openapi_extra=extra,
        response_class=Response,
    )


def _add_plugged(app: FastAPI, state: ServerState, routes: Sequence[PluggedRoute]) -> None:
    check_free(routes, app.routes)
    state.public_paths |= {route.path for route in routes if route.public}
    for route in routes:
        app.add_api_route(
            route.path,
            PluggedEndpoint(route, state).__call__,
            methods=list(route.methods),
            summary=route.summary or f"{route.method} {route.path}",
            response_class=Response,
        )


def _responses(route: Route) -> dict[str, Any]:
    """Say which content types a route answers with; errors are JSON."""
    fields = {} if route.body is None else route.body.model_fields
    types = ["text/plain"] if route.path == METRICS else [JSON]
    if "stream" in fields or (route.method, route.path) in STREAMED:
        types.append("text/event-stream")
    if "encoding_format" in fields:
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
    return state.dialect(request.url.path, request.scope["headers"]).response(note_error(as_api_error(error)))
