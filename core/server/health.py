"""Probes and self-description: /health, /ping, /ready, /load, /version, /metrics, /core/plugins."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core import __version__
from core.server import metrics
from core.server.answers import json_answer
from core.server.errors import ApiError
from core.server.state import ServerState


class HealthRoutes:
    """Answers what operators and probes ask."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def health(self, request: Request) -> Response:
        """Liveness: this process answers."""
        return json_answer({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Readiness: 200 while new generations are taken, else 503."""
        state = self._state
        if state.ready:
            return json_answer({"status": "ready"})
        if state.lifecycle.draining:
            raise ApiError(503, "The server is shutting down.", code="draining")
        if state.llm.healthy:
            raise ApiError(503, "The server is paused; its requests wait.", code="paused")
        raise ApiError(503, "The engine is not available.", code="engine")

    async def load(self, request: Request) -> Response:
        """Return how many generations are in flight, and how many the engine runs and keeps waiting."""
        stats = self._state.llm.stats
        load = {"server_load": len(self._state.lifecycle.work), "running": stats.running, "waiting": stats.waiting}
        return json_answer(load)

    async def version(self, request: Request) -> Response:
        """Return the version of core."""
        return json_answer({"version": __version__})

    async def metrics(self, request: Request) -> Response:
        """Return the Prometheus page."""
        return Response(self._state.metrics.render(), headers={"content-type": metrics.CONTENT_TYPE})

    async def plugins(self, request: Request) -> Response:
        """Return how every plugin was selected, losers and their reasons included."""
        return json_answer({"selections": [_plain(report) for report in self._state.reports]})


def _plain(report: Any) -> Any:
    return report.to_dict() if hasattr(report, "to_dict") else report
