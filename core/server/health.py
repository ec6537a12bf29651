"""Probes and self-description: /health, /ready, /version, /metrics, /core/plugins."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from core import __version__
from core.server import metrics
from core.server.errors import ApiError
from core.server.state import ServerState


class HealthRoutes:
    """Answers what operators and probes ask."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def health(self, request: Request) -> Response:
        """Liveness: this process answers."""
        return _json({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Readiness: 200 while new generations are taken, else 503."""
        if self._state.ready:
            return _json({"status": "ready"})
        draining = self._state.lifecycle.draining
        message = "The server is shutting down." if draining else "The engine is not available."
        raise ApiError(503, message, code="draining" if draining else "engine")

    async def version(self, request: Request) -> Response:
        """Return the version of core."""
        return _json({"version": __version__})

    async def metrics(self, request: Request) -> Response:
        """Return the Prometheus page."""
        return Response(self._state.metrics.render(), headers={"content-type": metrics.CONTENT_TYPE})

    async def plugins(self, request: Request) -> Response:
        """Return how every plugin was selected, losers and their reasons included."""
        return _json({"selections": [_plain(report) for report in self._state.reports]})


def _plain(report: Any) -> Any:
    return report.to_dict() if hasattr(report, "to_dict") else report


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
