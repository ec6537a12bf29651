"""Weight updates over HTTP: init, start, update, finish, on the weight-transfer engine that the server was given.

One update at a time. Each part takes effect by itself: later tokens are computed with the new weights.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from core.api import CheckpointError, ConfigError, CoreError, RequestError
from core_plugin_admin.bodies import AdminBody, FromDiskBody, InitBody, StartBody, UpdateBody
from core_plugin_admin.server import Server

logger = logging.getLogger(__name__)

DISK = "disk"
NO_TRANSFER = "CORE-E123"


async def init_engine(server: Server, asked: InitBody) -> Mapping[str, Any]:
    """Make sure that a weight-transfer engine is there; 501 if not."""
    engine = _engine(server)
    if asked.init_info:
        raise RequestError(f"The weight-transfer engine '{engine}' takes no init_info.", param="init_info")
    return {"status": "initialized", "engine": engine}


async def start_update(server: Server, asked: StartBody) -> Mapping[str, Any]:
    """Begin an update; 409 while another one is open."""
    _engine(server)
    if not asked.is_checkpoint_format:
        raise _absent("Weights are taken by their names in the checkpoint only.", param="is_checkpoint_format")
    _check_closed(server)
    server.updating = server.operator.restarts
    return {"status": "started"}


async def update_weights(server: Server, asked: UpdateBody) -> Mapping[str, Any]:
    """Load weights between two steps; what was computed with the old ones is computed again."""
    _check_open(server)
    return {"status": "updated", "version": await _load(server, asked.update_info)}


async def finish_update(server: Server, asked: AdminBody) -> Mapping[str, Any]:
    """End an update and return the version that is served."""
    _check_open(server)
    server.updating = None
    return {"status": "finished", "version": await _version(server)}


async def update_from_disk(server: Server, asked: FromDiskBody) -> Mapping[str, Any]:
    """Do a whole update from files; 409 while another one is open."""
    if _engine(server) != DISK:
        raise _absent("Updates from files need the weight-transfer engine 'disk': start with --weight-transfer disk.")
    _check_closed(server)
    given = {"version": asked.weight_version} if asked.weight_version is not None else {}
    version = await _load(server, {"path": asked.model_path, **given})
    return {"success": True, "message": "The weights were updated.", "weight_version": version}


async def weight_info(server: Server, asked: None) -> Mapping[str, Any]:
    """Return the version of the weights, the one that was lost with an engine, and who may replace them."""
    version, operator = await _version(server), server.operator
    known = {"version": version, "lost_version": operator.lost_weights}
    return {**known, "engine": operator.weight_transfer, "update_open": _is_open(server)}


async def world_size(server: Server, asked: None) -> Mapping[str, Any]:
    """Return the number of workers: this version runs one."""
    return {"world_size": 1}


async def _load(server: Server, told: Mapping[str, Any]) -> str:
    async with server.loading:
        try:
            version = str(await server.client.call("update_weights", dict(told)))
        except CoreError as error:
            raise _told(error) from None
    logger.warning("the weights were updated to version %s by an admin request", version)
    return version


def _told(error: CoreError) -> CoreError | RequestError:
    """Return what an operator is told of a failed update: whose mistake it was, and the sentence."""
    if error.code == NO_TRANSFER:
        return _absent(f"{error.message} {error.hint}".strip())
    if isinstance(error, (CheckpointError, ConfigError)):
        return RequestError(error.message, code=error.code)
    return error


async def _version(server: Server) -> str:
    return str(await server.client.call("worker", "weight_version"))


def _engine(server: Server) -> str:
    chosen = server.operator.weight_transfer
    if not chosen:
        raise _absent("Weights cannot be updated: start with --weight-transfer NAME (`core plugins list`).")
    return chosen


def _absent(message: str, *, param: str | None = None) -> RequestError:
    return RequestError(message, param=param, code="not_implemented", status=501)


def _is_open(server: Server) -> bool:
    return server.updating == server.operator.restarts


def _check_closed(server: Server) -> None:
    if _is_open(server):
        message = "A weight update is open: POST /finish_weight_update ends it."
        raise RequestError(message, code="weight_update_open", status=409)


def _check_open(server: Server) -> None:
    _engine(server)
    if not _is_open(server):
        message = "No weight update is open: POST /start_weight_update begins one."
        raise RequestError(message, code="no_weight_update", status=409)
