"""Probes and self-description: /health, /ready, /load, /version, /metrics, /core/plugins, and other names of probes."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core.api.errors import CoreError
from core.server import metrics
from core.server.answers import json_answer
from core.server.errors import ApiError
from core.server.refusals import NOTHING
from core.server.routes import Route
from core.server.state import ServerState
from core.version import __version__

METRICS = "/metrics"


async def health(state: ServerState, request: Request) -> Response:
    """Liveness: this process answers."""
    return json_answer({"status": "ok"})


async def ready(state: ServerState, request: Request) -> Response:
    """Readiness: 200 while new generations are taken, else 503."""
    if state.ready:
        return json_answer({"status": "ready"})
    why = _not_ready(state)
    why.reason = NOTHING
    raise why


def _not_ready(state: ServerState) -> ApiError:
    if state.lifecycle.draining:
        return ApiError(503, "The server is shutting down.", code="draining")
    if state.llm.healthy:
        return ApiError(503, "The server is paused; its requests wait.", code="paused")
    return state.unavailable()


async def load(state: ServerState, request: Request) -> Response:
    """Return how many generations are in flight, and how many the engine runs and keeps waiting."""
    stats = state.llm.stats
    return json_answer({"server_load": len(state.lifecycle.work), "running": stats.running, "waiting": stats.waiting})


async def version(state: ServerState, request: Request) -> Response:
    """Return the version of core."""
    return json_answer({"version": __version__})


async def metrics_page(state: ServerState, request: Request) -> Response:
    """Return the Prometheus page."""
    await state.metrics.connectors.refresh()
    return Response(state.metrics.render(), headers={"content-type": metrics.CONTENT_TYPE})


async def plugins(state: ServerState, request: Request) -> Response:
    """Return how every plugin was selected, losers and their reasons included, and what failed in them since."""
    faults = [*state.faults(), *await _engine_faults(state)]
    return json_answer({"selections": [_plain(report) for report in state.reports], "faults": faults})


async def _engine_faults(state: ServerState) -> list[dict[str, Any]]:
    """Return what failed in plugins' objects in the engine; nothing while there is no engine to ask."""
    try:
        found: list[dict[str, Any]] = await state.llm.call("plugin_faults") if state.llm.healthy else []
        return found
    except CoreError:
        return []


def _plain(report: Any) -> Any:
    return report.to_dict() if hasattr(report, "to_dict") else report


ROUTES = (
    Route("GET", "/health", health),
    Route("GET", "/livez", health),
    Route("GET", "/ping", health),
    Route("POST", "/ping", health),
    Route("GET", "/ready", ready),
    Route("GET", "/readyz", ready),
    Route("GET", "/load", load),
    Route("GET", "/version", version),
    Route("GET", METRICS, metrics_page),
    Route("GET", "/core/plugins", plugins),
)
