"""One route of a plugin on the wire: its request, its answer, and its assets."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import IO, Any, cast

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from core.api.middleware import SHORT_CUT
from core.api.routes import MAX_PARTS, B, Endpoint, RouteRequest, RouteResponse
from core.api.serving import Reply
from core.api.uploads import RouteForm
from core.plugins.drivers import describe
from core.server.body import read_object
from core.server.browsers import check_page
from core.server.dialect import careful
from core.server.errors import INTERNAL, ApiError, ClientGoneError, as_api_error
from core.server.form import read_form
from core.server.outlet import StreamBody, pour
from core.server.plugin_routes.head import RequestHead
from core.server.plugin_routes.route import PluginRoute
from core.server.state import ServerState
from core.server.streaming import JobResponse, Watch, until_gone

logger = logging.getLogger(__name__)

_WITHOUT_BODY = frozenset({"GET", "HEAD"})
_ANNOUNCES_BODY = frozenset({b"content-length", b"transfer-encoding"})


class PluginRequest(RequestHead[Request]):
    """`RouteRequest` over the server's own request."""

    def __init__(self, request: Request, state: ServerState) -> None:
        super().__init__(request)
        self._state = state
        self._files: list[IO[bytes]] = []

    def close(self) -> None:
        """Close the files that it has brought."""
        for file in self._files:
            file.close()

    @property
    def method(self) -> str:
        """`GET`, `POST`, ..."""
        return self._request.method

    async def json(self, *, typed: bool = False, limit: int | None = None) -> dict[str, Any]:
        """Return the body. Raises what the server answers with a 4xx."""
        # The examples of other servers' APIs are `curl -d` alone, which calls everything a form.
        most = self._state.options.server.max_body_bytes if limit is None else limit
        return await read_object(self._request, most, typed=typed)

    async def read(self, kind: type[B]) -> tuple[B, dict[str, Any]]:
        """Return the body as a model, and its fields. Raises what the server answers with a 4xx."""
        return await self._state.read(self._request, kind)

    async def form(
        self, *, limit: int | None = None, part_limit: int | None = None, max_parts: int = MAX_PARTS
    ) -> RouteForm:
        """Return the body, a form. Raises what the server answers with a 4xx."""
        check_page(self._request, self._state)  # a browser sends forms across origins without asking first
        most = self._state.options.server.max_body_bytes if limit is None else limit
        most_of_one = most if part_limit is None else part_limit
        return await read_form(self._request, most, most_of_one, max_parts, self._files.append)


class PluginEndpoint:
    """Answers one route."""

    def __init__(self, route: PluginRoute, state: ServerState) -> None:
        self._route, self._state = route, state

    # Without a docstring: `/openapi.json` would tell it to clients.
    async def __call__(self, request: Request) -> Response:
        return PluginResponse(self._route, self._state)


class PluginResponse(Response):
    """Runs an endpoint, and the iterator it may return, while it watches the connection."""

    def __init__(self, route: PluginRoute, state: ServerState) -> None:
        # No `super().__init__`: it would announce the length of a body that does not exist yet.
        self.background = None
        self._route, self._state = route, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        incoming = Incoming(receive)
        await until_gone(self._state.lifecycle, incoming.watch, self._run(scope, incoming, send))

    async def _run(self, scope: Scope, incoming: Incoming, send: Send) -> None:
        """Run the endpoint. What it does wrong ends this request, and the log says whose fault it was."""
        if _without_body(scope):
            incoming.watch.begin()
        try:
            await self._answer(scope, incoming, send)
        except Exception as error:
            if isinstance(error, (ApiError, ClientGoneError)) or as_api_error(error).code != INTERNAL:
                raise
            owner, place = self._route.owner, f"{self._route.method} {self._route.path}"
            logger.error("CORE-P108 route plugin %s: %s raised %s", owner, place, describe(error))
            raise ApiError(500, f"Route plugin {owner} failed (CORE-P108).", code="CORE-P108") from error

    async def _answer(self, scope: Scope, incoming: Incoming, send: Send) -> None:
        request = PluginRequest(Request(scope, incoming.receive), self._state)
        try:
            await self._send(await cast(Endpoint, self._route.endpoint)(request), scope, incoming, send)
        finally:
            request.close()

    async def _send(self, answer: object, scope: Scope, incoming: Incoming, send: Send) -> None:
        incoming.watch.begin()
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
        if answer.dialect is not None:
            dialect = careful(self._route.owner, answer.dialect)
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


def _without_body(scope: Scope) -> bool:
    return scope["method"] in _WITHOUT_BODY and _ANNOUNCES_BODY.isdisjoint(name for name, _ in scope["headers"])


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

    Attributes:
        watch: Begins once the body was read.
    """

    __slots__ = ("_receive", "watch")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.watch = Watch(receive)

    async def receive(self) -> Message:
        """Return the next message of the body."""
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self.watch.begin()
        return message


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
