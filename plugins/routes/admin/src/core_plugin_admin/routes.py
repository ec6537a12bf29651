"""All admin routes, as data, and the plugin that declares them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple

import orjson

from core.api import EngineClient, RouteRegistry, RouteRequest, RouteResponse
from core.api.routes import Endpoint
from core_plugin_admin import control, info, profiling, weights
from core_plugin_admin.absent import ABSENT, is_sleeping, refusal_of
from core_plugin_admin.bodies import (
    AbortBody,
    AdminBody,
    FromDiskBody,
    InitBody,
    LogBody,
    PauseBody,
    StartBody,
    UpdateBody,
    read_admin,
)
from core_plugin_admin.server import Server


class AdminRoute(NamedTuple):
    """One route. Its path has no parameters, so that the scope is decided by the path alone.

    Attributes:
        answer: Returns what is answered, of the server and the fields.
        fields: What it reads of query and body; None: nothing.
    """

    method: str
    path: str
    answer: Callable[[Server, Any], Awaitable[Mapping[str, Any]]]
    fields: type[AdminBody] | None = None

    @property
    def body(self) -> type[AdminBody] | None:
        """Type of the body that clients are told of; None for a route without one."""
        return self.fields if self.method == "POST" and self.fields is not None and self.fields.model_fields else None


ROUTES = (
    AdminRoute("POST", "/pause", control.pause, PauseBody),
    AdminRoute("POST", "/resume", control.resume, AdminBody),
    AdminRoute("GET", "/is_paused", control.is_paused),
    AdminRoute("POST", "/drain", control.drain, AdminBody),
    AdminRoute("POST", "/abort_requests", control.abort_requests, AbortBody),
    AdminRoute("POST", "/reset_prefix_cache", control.reset_prefix_cache, AdminBody),
    AdminRoute("POST", "/start_profile", profiling.start_profile, AdminBody),
    AdminRoute("POST", "/stop_profile", profiling.stop_profile, AdminBody),
    AdminRoute("GET", "/server_info", info.server_info),
    AdminRoute("GET", "/server_log", info.server_log, LogBody),
    AdminRoute("POST", "/init_weight_transfer_engine", weights.init_engine, InitBody),
    AdminRoute("POST", "/start_weight_update", weights.start_update, StartBody),
    AdminRoute("POST", "/update_weights", weights.update_weights, UpdateBody),
    AdminRoute("POST", "/finish_weight_update", weights.finish_update, AdminBody),
    AdminRoute("POST", "/update_weights_from_disk", weights.update_from_disk, FromDiskBody),
    AdminRoute("GET", "/weight_info", weights.weight_info),
    AdminRoute("GET", "/get_world_size", weights.world_size),
    AdminRoute("GET", "/is_sleeping", is_sleeping),
    *(AdminRoute("POST", path, refusal_of(path)) for path in ABSENT),
)


class AdminRoutes:
    """The routes."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._server: Server

    def declare(self, registry: RouteRegistry) -> None:
        """Declare the routes."""
        for route in ROUTES:
            registry.add(route.method, route.path, self._endpoint(route), body=route.body, scope="admin")

    def bind(self, client: EngineClient) -> None:
        """Requests come from now on."""
        self._server = Server(client)

    def _endpoint(self, route: AdminRoute) -> Endpoint:
        @wraps(route.answer)
        async def endpoint(request: RouteRequest) -> RouteResponse:
            asked = None if route.fields is None else await read_admin(request, route.fields)
            return RouteResponse(orjson.dumps(await self._answered(route, asked)))

        return endpoint

    async def _answered(self, route: AdminRoute, asked: AdminBody | None) -> Mapping[str, Any]:
        """Return the answer. What is done, and not only looked at, is done whether or not its client stays."""

        async def work() -> Mapping[str, Any]:
            return await route.answer(self._server, asked)

        return await (work() if route.method == "GET" else self._server.carry_out(work()))
