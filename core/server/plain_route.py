"""Routes whose endpoints take the request as it is and return the response as it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

PlainEndpoint = Callable[[Request], Awaitable[Response]]


class PlainRoute(APIRoute):
    """A route of the schema for which the framework does nothing more than to find it.

    Endpoints read their own bodies and have no dependencies: to look for some would take a tenth of a short request.
    """

    def __init__(self, path: str, endpoint: PlainEndpoint, **kwargs: Any) -> None:
        super().__init__(path, endpoint, **kwargs)
        self.app = _answering(endpoint)


def _answering(endpoint: PlainEndpoint) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)

    return app
