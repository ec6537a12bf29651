"""The web sockets of all plugins: whose a path is, and who may open it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import HTTPConnection
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from core.server.browsers import check_page
from core.server.errors import ApiError
from core.server.plugin_routes.route import PluginRoute
from core.server.plugin_routes.socket import PluginSocket
from core.server.state import ServerState
from core.server.streaming import stopping

RETRY_AFTER_SECONDS = 5
"""When to come back who found too many sockets open: they stay longer than requests do."""


class Sockets:
    """Answers requests for web sockets, behind the gate; false where there are none.

    Args:
        state: What the routes share.
        routes: Of all plugins; those that are no sockets are passed over.
    """

    def __init__(self, state: ServerState, routes: Iterable[PluginRoute]) -> None:
        self._state = state
        self._routes = [(compile_path(route.path), route) for route in routes if route.socket]

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the endpoint of a path. Raises `ApiError`: 403, 404, 503, or as `PluginSocket.run`.

        Between the bound and the place that `run` takes nothing waits, so that no two take the last one.
        """
        route, params = self._find(scope["path"])
        scope["route"], scope["path_params"] = route, params
        check_page(HTTPConnection(scope), self._state)
        if self._state.lifecycle.draining:
            raise stopping()
        if len(self._state.lifecycle.sockets) >= self._state.options.server.max_sockets:
            raise _full()
        await PluginSocket(scope, receive, send, self._state, route).run()

    def _find(self, path: str) -> tuple[PluginRoute, dict[str, Any]]:
        for (pattern, _, convertors), route in self._routes:
            if found := pattern.match(path):
                return route, {name: convertors[name].convert(value) for name, value in found.groupdict().items()}
        raise ApiError(404, "There is no such web socket.", code="route_not_found")


def _full() -> ApiError:
    headers = {"retry-after": str(RETRY_AFTER_SECONDS)}
    return ApiError(503, "Too many web sockets are open; try again soon.", code="sockets_full", headers=headers)
