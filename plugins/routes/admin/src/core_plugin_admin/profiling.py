"""`/start_profile` and `/stop_profile`: how long the phases of the engine's steps take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api import RequestError
from core_plugin_admin.bodies import AdminBody
from core_plugin_admin.server import Server


async def start_profile(server: Server, asked: AdminBody) -> Mapping[str, Any]:
    """Begin to time the steps. 409 if it has begun."""
    if server.profiling:
        raise RequestError("The profile is running: POST /stop_profile ends it.", code="profile_running", status=409)
    await server.client.call("profile", True)
    server.profiling = True
    return {"status": "started"}


async def stop_profile(server: Server, asked: AdminBody) -> Mapping[str, Any]:
    """End it and return the phases: count, total seconds, median, 99th percentile. 409 if none is running."""
    if not server.profiling:
        raise RequestError("No profile is running: POST /start_profile begins one.", code="no_profile", status=409)
    phases = await server.client.call("profile", False)
    server.profiling = False
    what = server.operator.phases
    return {"status": "stopped", "phases": [_row(name, what.get(name, ""), row) for name, row in phases.items()]}


def _row(name: str, what: str, figures: list[float]) -> dict[str, object]:
    count, total, median, high = figures
    return {"phase": name, "what": what, "count": int(count), "total_s": total, "median_s": median, "p99_s": high}
