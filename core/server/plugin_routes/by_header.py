"""Routes of plugins for the clients that send a header, on paths that answer everybody else in another way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from core.server.plain_route import PlainEndpoint
from core.server.plugin_routes.response import PluginEndpoint
from core.server.plugin_routes.route import PluginRoute
from core.server.state import ServerState


class ByHeader:
    """Chooses between a path's own endpoint and those of plugins for clients of other APIs."""

    def __init__(self, state: ServerState, routes: Iterable[PluginRoute]) -> None:
        self._routes = {route: PluginEndpoint(route, state) for route in routes if route.header is not None}
        self._met: set[PluginRoute] = set()

    def around(self, path: str, methods: Sequence[str], own: PlainEndpoint) -> PlainEndpoint:
        """Return an endpoint that answers those who send a plugin's header as the plugin does, and others as `own`."""
        theirs = {route: answer for route, answer in self._routes.items() if route.answers(path, methods)}
        if not theirs:
            return own
        self._met |= theirs.keys()

        async def endpoint(request: Request) -> Response:
            for route, answer in theirs.items():
                if route.header in request.headers:
                    return await answer(request)
            return await own(request)

        return endpoint

    def alone(self) -> list[PluginRoute]:
        """Return the routes whose paths nobody else has: to others they do not exist."""
        return [route for route in self._routes if route not in self._met]


async def nothing(request: Request) -> Response:
    """Say that there is no such route."""
    raise HTTPException(404)
