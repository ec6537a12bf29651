"""The application: routes over a generation front end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from core.api.bodies import SamplingBody
from core.config.resolved import Options
from core.frontend.answering.parsing import AnswerParser
from core.frontend.tasks.refusals import does_not_generate
from core.server.account import note_error
from core.server.answers import JSON
from core.server.auth import PUBLIC_PATHS
from core.server.browsers import Browsers
from core.server.dialect import error_answer
from core.server.edge import check_origins
from core.server.errors import as_api_error
from core.server.gate import Gate
from core.server.health import METRICS
from core.server.health import ROUTES as HEALTH
from core.server.interface import ServedLLM
from core.server.metrics import Metrics
from core.server.plain_route import PlainEndpoint, PlainRoute
from core.server.plugin_routes.by_header import ByHeader, nothing
from core.server.plugin_routes.figures import PluginFigures
from core.server.plugin_routes.free_paths import check_free
from core.server.plugin_routes.layer import PluginLayer
from core.server.plugin_routes.response import PluginEndpoint
from core.server.plugin_routes.route import PluginRoute
from core.server.prefix import Prefix
from core.server.routes import Route
from core.server.sockets import Sockets
from core.server.state import ServerState
from core.version import __version__


async def refuse_generation(state: ServerState, request: Request) -> Response:
    """Say with 400 what the model gives: what routes that generate do where the engine has another task."""
    front = state.llm.front
    assert front is not None
    raise does_not_generate(state.llm.model_name, front)


class Api(FastAPI):
    """The application; the schemas of bodies are made when somebody asks, as they take longer than all else here."""

    def openapi(self) -> dict[str, Any]:
        """Return the schema, made once."""
        for extra, body, takes in self.state.bodies:
            schema = inline_refs(body.model_json_schema())
            if issubclass(body, SamplingBody):
                further = {name: one.schema for name, one in self.state.core.llm.plugin_fields.items()}
                schema["properties"] = {**further, **schema["properties"]}
            content = {takes: {"schema": schema}}
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
    plugin_routes: Sequence[PluginRoute] = (),
    layers: Sequence[PluginLayer] = (),
    figures: Sequence[PluginFigures] = (),
) -> FastAPI:
    """Return the application.

    Args:
        llm: Generates.
        options: Limits, key and logging.
        parser: Reads tool calls and reasoning in chat output.
        reports: How plugins were selected, for `GET /core/plugins`.
        defaults: Sampling parameters used where a request leaves them out.
        plugin_routes: Routes of plugins.
        layers: Theirs around all routes, the outermost first.
        figures: Theirs on the page of metrics.
    """
    state = ServerState(llm, options, Metrics(llm, figures), parser, defaults or {}, reports)
    # The interactive pages would load scripts from elsewhere; the schema itself is served (and needs the key).
    servers = [{"url": prefix}] if (prefix := options.server.root_path) else None
    app = Api(title="core", version=__version__, docs_url=None, redoc_url=None, servers=servers)
    app.router.route_class = PlainRoute
    app.state.core, app.state.bodies = state, []
    if options.server.public_metrics:
        state.public_paths.add(METRICS)
    by_header = ByHeader(state, plugin_routes)
    for route in HEALTH:
        _add(app, state, route, by_header)
    own = list(app.router.routes)
    _add_plugins(app, state, plugin_routes, by_header)
    app.router.routes[:] = [*app.router.routes[len(own) :], *own]  # what is asked most is found first
    for layer in reversed(layers):
        app.add_middleware(layer.around)
    app.add_exception_handler(HTTPException, _render)
    app.add_middleware(Gate, state=state, sockets=Sockets(state, plugin_routes))
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


def _add(app: FastAPI, state: ServerState, route: Route, by_header: ByHeader) -> None:
    """Add a route of core's own."""

    async def endpoint(request: Request) -> Response:
        return await route.endpoint(state, request)

    app.add_api_route(
        route.path,
        by_header.around(route.path, [route.method], endpoint),
        methods=[route.method],
        name=route.endpoint.__name__,
        summary=f"{route.method} {route.path}",  # else the schema would show the name of a Python function
        openapi_extra=_told(app, route.path, route.body),
        response_class=Response,
    )


def _add_plugins(app: FastAPI, state: ServerState, routes: Sequence[PluginRoute], by_header: ByHeader) -> None:
    state.public_paths |= {route.path for route in routes if route.public}
    check_free(routes, app.routes, keyless=state.public_paths | PUBLIC_PATHS)
    state.admin_paths |= {route.path for route in routes if route.scope == "admin"}
    state.has_sockets = any(route.socket for route in routes)
    if state.has_sockets:
        state.metrics.show_sockets(lambda: len(state.lifecycle.sockets))
    for route in routes:
        if route.header is None and not route.socket:
            refused = route.generates and state.llm.front is not None
            own = partial(refuse_generation, state) if refused else PluginEndpoint(route, state).__call__
            _add_one(app, route, by_header.around(route.path, route.methods, own))
    for route in by_header.alone():
        _add_one(app, route, by_header.around(route.path, route.methods, nothing))


def _add_one(app: FastAPI, route: PluginRoute, endpoint: PlainEndpoint) -> None:
    told = not route.file  # what says nothing of its answers gives JSON, as `RouteResponse` does
    app.add_api_route(
        route.path,
        endpoint,
        methods=list(route.methods),
        name=getattr(route.endpoint, "__name__", None),  # files have none
        summary=route.summary or f"{route.method} {route.path}",
        openapi_extra=_told(app, route.path, route.body, streams=route.streams, takes=route.takes) if told else None,
        response_class=Response,
    )


def _told(
    app: FastAPI, path: str, body: type[BaseModel] | None, *, streams: bool = False, takes: str = JSON
) -> dict[str, Any]:
    """Return what the schema says of a route beside its path; the body that it reads itself is told all the same.

    Content types of answers are named; errors are JSON.
    """
    fields = {} if body is None else body.model_fields
    types = ["text/plain"] if path == METRICS else [JSON]
    if streams or "stream" in fields:
        types.append("text/event-stream")
    if "encoding_format" in fields:
        types.append("application/octet-stream")
    answers = {
        "200": {"description": "The answer.", "content": {kind: {} for kind in types}},
        "default": {"description": "An error.", "content": {JSON: {}}},
    }
    told: dict[str, Any] = {"responses": answers}
    if body is not None:
        app.state.bodies.append((told, body, takes))
    return told


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
    dialect = state.dialect(request.url.path, request.scope["headers"])
    return error_answer(dialect, note_error(as_api_error(error)))
