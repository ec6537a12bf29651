"""`/start_profile` and `/stop_profile`: how long the phases of the engine's steps take."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from core.engine.profile import PHASES
from core.server.admin.bodies import AdminBody, read_admin
from core.server.answers import json_answer
from core.server.errors import ApiError
from core.server.state import ServerState


async def start_profile(state: ServerState, request: Request) -> Response:
    """Begin to time the steps. 409 if it has begun."""
    await read_admin(request, AdminBody)
    if state.operations.profiling:
        raise ApiError(409, "The profile is running: POST /stop_profile ends it.", code="profile_running")
    await state.llm.call("profile", True)
    state.operations.profiling = True
    return json_answer({"status": "started"})


async def stop_profile(state: ServerState, request: Request) -> Response:
    """End it and return the phases: count, total seconds, median, 99th percentile. 409 if none is running."""
    await read_admin(request, AdminBody)
    if not state.operations.profiling:
        raise ApiError(409, "No profile is running: POST /start_profile begins one.", code="no_profile")
    phases = await state.llm.call("profile", False)
    state.operations.profiling = False
    return json_answer({"status": "stopped", "phases": [_row(name, figures) for name, figures in phases.items()]})


def _row(name: str, figures: list[float]) -> dict[str, object]:
    count, total, median, high = figures
    return {
        "phase": name,
        "what": PHASES.get(name, ""),
        "count": int(count),
        "total_s": total,
        "median_s": median,
        "p99_s": high,
    }
