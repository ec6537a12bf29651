"""One route of a plugin on the wire: its request, its answer, and its assets."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from core.api.routes import B, RouteRequest, RouteResponse
from core.api.serving import Reply
from core.plugins.drivers import describe
from core.server.body import read_object
from core.server.errors import INTERNAL, ApiError, as_api_error
from core.server.outlet import SHORT_CUT, StreamBody, pour
from core.server.plugged import PluggedRoute
from core.server.state import ServerState
from core.server.streaming import JobResponse, until_gone

logger = logging.getLogger(__name__)

_WITHOUT_BODY = frozenset({"GET", "HEAD"})


class PluggedRequest:
    """`RouteRequest` over the server's own request."""

    def __init__(self, request: Request, state: ServerState) -> None:
        self._request, self._state = request, state

    # Made when they are asked for: most requests are asked for none of them.

    @property
    def method(self) -> str:
        """`GET`, `POST`, ..."""
        return self._request.method

    @property
    def path(self) -> str:
        """Path without the query."""
        return self._request.url.path

    @property
    def path_params(self) -> Mapping[str, str]:
        """Values of the path's parameters."""
        return {name: str(value) for name, value in self._request.path_params.items()}

    @property
    def query(self) -> Mapping[str, str]:
        """Query parameters."""
        return dict(self._request.query_params)

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers, by names in lower case."""
        return dict(self._request.headers)

    async def json(self) -> dict[str, Any]:
        """Return the body. Raises what the server answers with a 4xx."""
        # The examples of other servers' APIs are `curl -d` alone, which calls everything a form.
        return await read_object(self._request, self._state.options.server.max_body_bytes, typed=False)

    async def read(self, kind: type[B]) -> tuple[B, dict[str, Any]]:
        """Return the body as a model, and its fields. Raises what the server answers with a 4xx."""
        return await self._state.read(self._request, kind)


class PluggedEndpoint:
    """Answers one route."""

    def __init__(self, route: PluggedRoute, state: ServerState) -> None:
        self._route, self._state = route, state

    async def __call__(self, request: Request) -> Response:
        """Return what runs the plugin's endpoint."""
        return PluggedResponse(self._route, self._state)


class PluggedResponse(Response):
    """Runs an endpoint, and the iterator it may return, while it watches the connection."""

    def __init__(self, route: PluggedRoute, state: ServerState) -> None:
        # No `super().__init__`: it would announce the length of a body that does not exist yet.
        self.background = None
        self._route, self._state = route, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        incoming = Incoming(receive, whole=scope["method"] in _WITHOUT_BODY)
        work = self._run(scope, incoming, send)
        await until_gone(self._state.lifecycle, incoming.gone, work, counted=False)

    async def _run(self, scope: Scope, incoming: Incoming, send: Send) -> None:
        """Run the endpoint. What it does wrong ends this request, and the log says whose fault it was."""
        try:
            await self._answer(scope, incoming, send)
        except Exception as error:
            if as_api_error(error).code != INTERNAL:
                raise
            owner, place = self._route.owner, f"{self._route.method} {self._route.path}"
            logger.error("CORE-P108 route plugin %s: %s raised %s", owner, place, describe(error))
            raise ApiError(500, f"Route plugin {owner} failed (CORE-P108).", code="CORE-P108") from error

    async def _answer(self, scope: Scope, incoming: Incoming, send: Send) -> None:
        request = Request(scope, incoming.receive)
        answer = await self._route.endpoint(PluggedRequest(request, self._state))
        incoming.read.set()
        if isinstance(answer, Reply):
            await self._reply(answer, scope, send)
            return
        if not isinstance(answer, RouteResponse):
            raise TypeError(f"the endpoint gave a {type(answer).__name__}, not a RouteResponse")
        if isinstance(answer.body, bytes):
            whole = Response(answer.body, answer.status, dict(answer.headers), answer.media_type)
            await whole(scope, incoming.receive, send)
        else:
            await _stream(answer, answer.body, send, scope.get(SHORT_CUT, send))

    async def _reply(self, answer: Reply, scope: Scope, send: Send) -> None:
        lifecycle, dialect = self._state.lifecycle, self._state.dialect(scope["path"], scope["headers"])
        response = JobResponse(
            lifecycle,
            answer.job,
            stream=answer.stream,
            headers=answer.headers,
            dialect=dialect,
            media_type=answer.media_type,
        )
        with lifecycle.counted():
            await response.run(scope, send)


async def _stream(answer: RouteResponse, body: AsyncIterator[bytes], send: Send, write: Send) -> None:
    raw = StreamingResponse((), answer.status, dict(answer.headers), answer.media_type).raw_headers
    out = StreamBody({"type": "http.response.start", "status": answer.status, "headers": raw}, send, write)
    # An iterator without `aclose` has nothing to close.
    async with aclosing(cast(Any, body if hasattr(body, "aclose") else _closable(body))) as pieces:
        first = await anext(pieces, b"")
        if not isinstance(first, bytes):
            raise TypeError(f"the iterator gives {type(first).__name__}, not bytes")
        out.put(first)
        await out.room()
        await pour(pieces, out)
    await out.end(b"")


async def _closable(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for piece in body:
        yield piece


class Incoming:
    """The connection's messages: first the body, for who reads it, then the news that the client has gone.

    Args:
        whole: There is no body to wait for.

    Attributes:
        read: Set once nobody reads a body any more.
    """

    def __init__(self, receive: Receive, *, whole: bool) -> None:
        self._receive = receive
        self.read = asyncio.Event()
        if whole:
            self.read.set()

    async def receive(self) -> Message:
        """Return the next message of the body."""
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self.read.set()
        return message

    async def gone(self) -> Message:
        """Return the next message behind the body."""
        await self.read.wait()
        return await self._receive()


@dataclass(frozen=True, slots=True)
class Asset:
    """The endpoint of a file: the same bytes every time, or the news that the client has them."""

    content: bytes
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict)

    async def __call__(self, request: RouteRequest) -> RouteResponse:
        """Return the file, or 304."""
        tag = f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'
        headers = {**_CAREFUL, **self.headers, "etag": tag}
        known = {one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")}
        if known & {tag, "*"}:
            return RouteResponse(b"", 304, self.media_type, headers)
        return RouteResponse(self.content, 200, self.media_type, headers)


_CAREFUL = {
    "cache-control": "no-cache",  # ask each time whether it has changed
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
}
