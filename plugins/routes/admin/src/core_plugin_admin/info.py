"""`GET /server_info` and `GET /server_log`: what the server was started with, how it fares, and what it said."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from core.api.operator import RECENT_LINES
from core_plugin_admin.bodies import LogBody
from core_plugin_admin.server import Server


async def server_info(server: Server, asked: None) -> Mapping[str, Any]:
    """Return version, model, options, state and the engine's figures."""
    client, operator = server.client, server.operator
    return {
        "version": operator.version,
        "model": {"id": client.model_name, "max_model_len": client.max_model_len},
        "state": {
            "ready": operator.ready,
            "paused": operator.paused,
            "draining": operator.draining,
            "profiling": server.profiling,
            "engine_restarts": operator.restarts,
            "in_flight": operator.in_flight,
            "uptime_s": int(time.time()) - client.created,
        },
        "options": operator.options,
        "engine": asdict(client.stats),
    }


async def server_log(server: Server, asked: LogBody) -> Mapping[str, Any]:
    """Return the newest lines, the oldest first; the engine's only while there is an engine to ask."""
    return {"lines": await server.operator.recent_log(asked.lines), "kept": RECENT_LINES}
