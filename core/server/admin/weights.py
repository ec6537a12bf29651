"""Weight updates over HTTP: init, start, update, finish, on the weight-transfer engine that the server was given."""

from __future__ import annotations

import asyncio
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


class WeightRoutes:
    """One update at a time. Each part takes effect by itself: later tokens are computed with the new weights."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._open = False
        self._lock = asyncio.Lock()

    async def init(self, request: Request) -> Response:
        """Make sure that a weight-transfer engine is there; 501 if not."""
        body = await read_admin(request, InitBody)
        engine = self._engine()
        if body.init_info:
            raise ApiError(400, f"The weight-transfer engine '{engine}' takes no init_info.", param="init_info")
        return json_answer({"status": "initialized", "engine": engine})

    async def start(self, request: Request) -> Response:
        """Begin an update; 409 while another one is open."""
        body = await read_admin(request, StartBody)
        self._engine()
        if not body.is_checkpoint_format:
            message = "Weights are taken by their names in the checkpoint only."
            raise ApiError(501, message, param="is_checkpoint_format", code="not_implemented")
        self._check_closed()
        self._open = True
        return json_answer({"status": "started"})

    async def update(self, request: Request) -> Response:
        """Load weights between two steps; what was computed with the old ones is computed again."""
        body = await read_admin(request, UpdateBody)
        self._check_open()
        return json_answer({"status": "updated", "version": await self._load(body.update_info)})

    async def finish(self, request: Request) -> Response:
        """End an update and return the version that is served."""
        await read_admin(request, AdminBody)
        self._check_open()
        self._open = False
        return json_answer({"status": "finished", "version": await self._version()})

    async def from_disk(self, request: Request) -> Response:
        """Do a whole update from files; 409 while another one is open."""
        body = await read_admin(request, FromDiskBody)
        if self._engine() != DISK:
            message = "Updates from files need the weight-transfer engine 'disk': start with --weight-transfer disk."
            raise ApiError(501, message, code="not_implemented")
        self._check_closed()
        given = {"version": body.weight_version} if body.weight_version is not None else {}
        version = await self._load({"path": body.model_path, **given})
        return json_answer({"success": True, "message": "The weights were updated.", "weight_version": version})

    async def info(self, request: Request) -> Response:
        """Return the version of the weights and who may replace them."""
        engine = self._state.options.select.weight_transfer
        return json_answer({"version": await self._version(), "engine": engine, "update_open": self._open})

    async def world_size(self, request: Request) -> Response:
        """Return the number of workers: this version runs one."""
        return json_answer({"world_size": 1})

    async def _load(self, info: Mapping[str, Any]) -> str:
        async with self._lock:
            try:
                version = str(await self._state.llm.call("update_weights", dict(info)))
            except CoreError as error:
                raise told(error) from None
        logger.warning("the weights were updated to version %s by an admin request", version)
        return version

    async def _version(self) -> str:
        return str(await self._state.llm.call("worker", "weight_version"))

    def _engine(self) -> str:
        chosen = self._state.options.select.weight_transfer
        if not chosen:
            message = "Weights cannot be updated: start with --weight-transfer NAME (`core plugins list`)."
            raise ApiError(501, message, code="not_implemented")
        return chosen

    def _check_closed(self) -> None:
        if self._open:
            message = "A weight update is open: POST /finish_weight_update ends it."
            raise ApiError(409, message, code="weight_update_open")

    def _check_open(self) -> None:
        self._engine()
        if not self._open:
            message = "No weight update is open: POST /start_weight_update begins one."
            raise ApiError(409, message, code="no_weight_update")
