"""All admin routes, as data. Their paths have no parameters, so that the scope is decided by the path alone."""

from __future__ import annotations

from core.server.admin import control, info, log, profiling, weights
from core.server.admin.absent import ABSENT, absent, is_sleeping
from core.server.admin.bodies import AbortBody, FromDiskBody, InitBody, PauseBody, StartBody, UpdateBody
from core.server.routes import Route

ROUTES = (
    Route("POST", "/pause", control.pause, PauseBody),
    Route("POST", "/resume", control.resume),
    Route("GET", "/is_paused", control.is_paused),
    Route("POST", "/drain", control.drain),
    Route("POST", "/abort_requests", control.abort_requests, AbortBody),
    Route("POST", "/reset_prefix_cache", control.reset_prefix_cache),
    Route("POST", "/start_profile", profiling.start_profile),
    Route("POST", "/stop_profile", profiling.stop_profile),
    Route("GET", "/server_info", info.server_info),
    Route("GET", "/server_log", log.server_log),
    Route("POST", "/init_weight_transfer_engine", weights.init_engine, InitBody),
    Route("POST", "/start_weight_update", weights.start_update, StartBody),
    Route("POST", "/update_weights", weights.update_weights, UpdateBody),
    Route("POST", "/finish_weight_update", weights.finish_update),
    Route("POST", "/update_weights_from_disk", weights.update_from_disk, FromDiskBody),
    Route("GET", "/weight_info", weights.weight_info),
    Route("GET", "/get_world_size", weights.world_size),
    Route("GET", "/is_sleeping", is_sleeping),
    *(Route("POST", path, absent) for path in ABSENT),
)
