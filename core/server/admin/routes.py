"""All admin routes, as data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from core.server.admin.absent import ABSENT, absent, is_sleeping
from core.server.admin.bodies import AbortBody, FromDiskBody, InitBody, PauseBody, StartBody, UpdateBody
from core.server.admin.control import ControlRoutes
from core.server.admin.info import InfoRoutes
from core.server.admin.profiling import ProfileRoutes
from core.server.admin.weights import WeightRoutes
from core.server.state import ServerState


class AdminRoute(NamedTuple):
    """A route of the admin scope. Its path has no parameters, so that the scope is decided by the path alone."""

    method: str
    path: str
    endpoint: Callable[[Request], Awaitable[Response]]
    body: type[BaseModel] | None = None


def admin_routes(state: ServerState) -> list[AdminRoute]:
    """Return the routes."""
    control, profile, weights = ControlRoutes(state), ProfileRoutes(state), WeightRoutes(state)
    return [
        AdminRoute("POST", "/pause", control.pause, PauseBody),
        AdminRoute("POST", "/resume", control.resume),
        AdminRoute("GET", "/is_paused", control.is_paused),
        AdminRoute("POST", "/abort_requests", control.abort, AbortBody),
        AdminRoute("POST", "/reset_prefix_cache", control.reset_prefix_cache),
        AdminRoute("POST", "/start_profile", profile.start),
        AdminRoute("POST", "/stop_profile", profile.stop),
        AdminRoute("GET", "/server_info", InfoRoutes(state).server_info),
        AdminRoute("POST", "/init_weight_transfer_engine", weights.init, InitBody),
        AdminRoute("POST", "/start_weight_update", weights.start, StartBody),
        AdminRoute("POST", "/update_weights", weights.update, UpdateBody),
        AdminRoute("POST", "/finish_weight_update", weights.finish),
        AdminRoute("POST", "/update_weights_from_disk", weights.from_disk, FromDiskBody),
        AdminRoute("GET", "/weight_info", weights.info),
        AdminRoute("GET", "/get_world_size", weights.world_size),
        AdminRoute("GET", "/is_sleeping", is_sleeping),
        *(AdminRoute("POST", path, absent) for path in ABSENT),
    ]
