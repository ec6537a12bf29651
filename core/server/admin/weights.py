"""Weight updates over HTTP: init, start, update, finish, on the weight-transfer engine that the server was given.

One update at a time. Each part takes effect by itself: later tokens are computed with the new weights.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core.api.errors import CoreError
from core.server.admin.bodies import (
    AdminBody,
    FromDiskBody,
    InitBody,
    StartBody,
    UpdateBody,
    read_admin,
    told,
)
from core.server.answers import json_answer
from core.server.errors import ApiError
from core.server.state import ServerState

logger = logging.getLogger(__name__)

DISK = "disk"


async def init_engine(state: ServerState, request: Request) -> Response:
    """Make sure that a weight-transfer engine is there; 501 if not."""
    body = await read_admin(request, InitBody)
    engine = _engine(state)
    if body.init_info:
        raise ApiError(400, f"The weight-transfer engine '{engine}' takes no init_info.", param="init_info")
    return json_answer({"status": "initialized", "engine": engine})


async def start_update(state: ServerState, request: Request) -> Response:
    """Begin an update; 409 while another one is open."""
    body = await read_admin(request, StartBody)
    _engine(state)
    if not body.is_checkpoint_format:
        message = "Weights are taken by their names in the checkpoint only."
        raise ApiError(501, message, param="is_checkpoint_format", code="not_implemented")
    _check_closed(state)
    state.operations.updating = state.llm.restarts
    return json_answer({"status": "started"})


async def update_weights(state: ServerState, request: Request) -> Response:
    """Load weights between two steps; what was computed with the old ones is computed again."""
    body = await read_admin(request, UpdateBody)
    _check_open(state)
    return json_answer({"status": "updated", "version": await _load(state, body.update_info)})


async def finish_update(state: ServerState, request: Request) -> Response:
    """End an update and return the version that is served."""
    await read_admin(request, AdminBody)
    _check_open(state)
    state.operations.updating = None
    return json_answer({"status": "finished", "version": await _version(state)})


async def update_from_disk(state: ServerState, request: Request) -> Response:
    """Do a whole update from files; 409 while another one is open."""
    body = await read_admin(request, FromDiskBody)
    if _engine(state) != DISK:
        message = "Updates from files need the weight-transfer engine 'disk': start with --weight-transfer disk."
        raise ApiError(501, message, code="not_implemented")
    _check_closed(state)
    given = {"version": body.weight_version} if body.weight_version is not None else {}
    version = await _load(state, {"path": body.model_path, **given})
    return json_answer({"success": True, "message": "The weights were updated.", "weight_version": version})


async def weight_info(state: ServerState, request: Request) -> Response:
    """Return the version of the weights, the one that was lost with an engine, and who may replace them."""
    engine = state.options.select.weight_transfer
    version = await _version(state)
    known = {"version": version, "lost_version": state.llm.lost_weights}
    return json_answer({**known, "engine": engine, "update_open": _is_open(state)})


async def world_size(state: ServerState, request: Request) -> Response:
    """Return the number of workers: this version runs one."""
    return json_answer({"world_size": 1})


async def _load(state: ServerState, info: Mapping[str, Any]) -> str:
    async with state.operations.loading:
        try:
            version = str(await state.llm.call("update_weights", dict(info)))
        except CoreError as error:
            raise told(error) from None
    logger.warning("the weights were updated to version %s by an admin request", version)
    return version


async def _version(state: ServerState) -> str:
    return str(await state.llm.call("worker", "weight_version"))


def _engine(state: ServerState) -> str:
    chosen = state.options.select.weight_transfer
    if not chosen:
        message = "Weights cannot be updated: start with --weight-transfer NAME (`core plugins list`)."
        raise ApiError(501, message, code="not_implemented")
    return chosen


def _is_open(state: ServerState) -> bool:
    return state.operations.updating == state.llm.restarts


def _check_closed(state: ServerState) -> None:
    if _is_open(state):
        message = "A weight update is open: POST /finish_weight_update ends it."
        raise ApiError(409, message, code="weight_update_open")


def _check_open(state: ServerState) -> None:
    _engine(state)
    if not _is_open(state):
        message = "No weight update is open: POST /start_weight_update begins one."
        raise ApiError(409, message, code="no_weight_update")
