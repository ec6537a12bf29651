"""`--root-path`: a reverse proxy shows the server below a path, and may or may not take it off what it hands over."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.api.middleware import SHORT_CUT
from core.server.plugin_routes.claims import below

_LOCATION = b"location"


class Prefix:
    """ASGI middleware outside all others, which see paths without the prefix: keys and routes go by one and the same.

    Args:
        app: The application.
        prefix: As `/prefix`, without a slash at its end.
    """

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix
        self._raw = prefix.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its own path."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http" and scope["path"] == self._prefix:  # relative links would lead beside the prefix
            await RedirectResponse(f"{self._prefix}/")(scope, receive, send)
            return
        host = Headers(scope=scope).get("host", "")

        async def write(message: Message) -> None:
            await send(self._outward(message, host) if message["type"] == "http.response.start" else message)

        scope = {SHORT_CUT: send, **scope}
        path, raw = scope["path"], scope.get("raw_path") or b""
        if below(path, self._prefix):
            scope["path"] = path[len(self._prefix) :] or "/"
            scope["raw_path"] = raw.removeprefix(self._raw) or b"/"
        await self._app(scope, receive, write)

    def _outward(self, message: Message, host: str) -> Message:
        headers = message.get("headers", ())
        if all(name != _LOCATION for name, _ in headers):
            return message
        shown = [(name, self._located(value, host) if name == _LOCATION else value) for name, value in headers]
        return {**message, "headers": shown}

    def _located(self, location: bytes, host: str) -> bytes:
        """Return where a redirect leads as clients see it; one to another server is left alone."""
        parts = urlsplit(location.decode("latin-1"))
        if parts.netloc not in ("", host) or not parts.path.startswith("/") or below(parts.path, self._prefix):
            return location
        return urlunsplit(parts._replace(path=self._prefix + parts.path)).encode("latin-1")
