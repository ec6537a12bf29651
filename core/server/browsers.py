"""Which web pages may call the API: cross-origin resource sharing, around everything else the server does."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from core.api.middleware import SHORT_CUT
from core.server.errors import ApiError
from core.server.state import ServerState

EXPOSED = ("x-request-id", "x-core-ignored-fields", "retry-after")
"""Headers of core's answers that a page may read, besides those that every page may."""


def check_page(request: HTTPConnection, state: ServerState) -> None:
    """Refuse what a browser sends for a web page of another origin that may not call the API, without asking first.

    Raises:
        ApiError: 403.
    """
    origin = request.headers.get("origin")
    if origin is None:
        foreign = request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    else:
        closed = request.scope["path"] in state.admin_paths
        allowed = () if closed else state.options.server.allowed_origins
        own = urlsplit(origin).netloc == request.headers.get("host", "")
        foreign = not (own or origin in allowed or "*" in allowed)
    if foreign:
        raise ApiError(403, "This page may not do that: its origin is not allowed.", code="cors")


class Browsers(CORSMiddleware):
    """ASGI middleware outside the gate: preflights bring no key, and refusals must be readable too.

    Admin routes are not opened: to a browser they look as if this layer were not there.

    Args:
        app: The gate and what is behind it.
        state: What the routes share; plugins are bound, so that it knows all admin paths and exposed headers.
    """

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        server = state.options.server
        super().__init__(
            app,
            allow_origins=server.allowed_origins,
            allow_methods=[method.upper() for method in server.allowed_methods],
            allow_headers=server.allowed_headers,
            allow_credentials=server.allow_credentials,
            expose_headers=(*EXPOSED, *sorted(state.exposed_headers)),
        )
        self._metrics = state.metrics
        self._closed = state.admin_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a preflight; let other requests pass and mark their answers."""
        if scope["type"] != "http" or scope["path"] in self._closed:
            await self.app(scope, receive, send)
            return
        scope.setdefault(SHORT_CUT, send)
        await super().__call__(scope, receive, send)

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a preflight; a refusal is counted."""
        response = super().preflight_response(request_headers)
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            self._metrics.unheard(ApiError(response.status_code, "This page may not do that.", code="cors"))
        return response
