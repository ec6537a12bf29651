"""A streaming HTTP/1.1 client for the load generator: so little work per chunk that it is not what is measured.

Pieces of an answer are handed over in the callback that read them from the socket, with the time of that read; no task
is woken per chunk. Connections are kept alive and reused, one request at a time on each.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import httptools

Receive = Callable[[int, bytes, float], None]
"""Takes the status, a piece of the body, and when it was read (`time.perf_counter`)."""


class HttpError(Exception):
    """The connection failed, ended too early, or did not speak HTTP/1.1."""


class HttpClient:
    """Requests to one address.

    Args:
        url: Whole address of the end point, `http` or `https`.
        headers: Sent with every request.
        verify: Whether the certificate of an `https` server is checked, or by which authorities.
    """

    def __init__(self, url: str, headers: Mapping[str, str], *, verify: ssl.SSLContext | bool = True) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise HttpError(f"{url!r} is no http or https address")
        self._host, self._tls = parts.hostname, _tls(verify) if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        # Chunks are timed as they arrive on the wire, so they must not be compressed.
        fixed = {"Host": parts.netloc.rpartition("@")[2], "Accept": "*/*", "Accept-Encoding": "identity"}
        lines = [f"{name}: {_header(name, value)}\r\n" for name, value in {**fixed, **headers}.items()]
        self._head = f"POST {target} HTTP/1.1\r\n{''.join(lines)}".encode()
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()

    async def post(self, body: bytes, receive: Receive, headers: Mapping[str, str] | None = None) -> int:
        """Send one request, hand over its answer piece by piece, and return the status once it is complete.

        Raises:
            HttpError: No connection, or the answer ended before it was complete.
        """
        connection = await self._connection()
        extra = "".join(f"{name}: {_header(name, value)}\r\n" for name, value in (headers or {}).items()).encode()
        try:
            status = await connection.exchange(
                b"%bContent-Length: %d\r\n%b\r\n%b" % (self._head, len(body), extra, body), receive
            )
        except BaseException:
            connection.close()
            raise
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.close()
        return status

    async def close(self) -> None:
        """Close every connection."""
        for connection in list(self._open):
            connection.close()
        await asyncio.sleep(0)

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: _Connection(self._open), self._host, self._port, ssl=self._tls
            )
        except OSError as error:
            raise HttpError(f"no connection to {self._host}:{self._port}: {error.strerror or error}") from None
        return connection


class _Connection(asyncio.Protocol):
    """One connection; `httptools` calls the `on_...` methods."""

    def __init__(self, open_connections: set[_Connection]) -> None:
        self._all = open_connections
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[int] | None = None
        self._receive: Receive | None = None
        self._now = 0.0
        self._status = 0
        self._until_end = False
        self.reusable = True

    async def exchange(self, request: bytes, receive: Receive) -> int:
        self._receive = receive
        self._done = asyncio.get_running_loop().create_future()
        if self._transport is None or not self.reusable:
            raise HttpError("the server closed the connection")
        self._transport.write(request)
        return await self._done

    def close(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a protocol of a stream gets a Transport
        self._all.add(self)

    def data_received(self, data: bytes) -> None:
        self._now = time.perf_counter()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"not an HTTP/1.1 answer: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        self._all.discard(self)
        if self._until_end and self._status:
            self._finish()
        self._fail(str(exc) if exc else "the server closed the connection before the answer was complete")

    def on_message_begin(self) -> None:
        self._status, self._until_end = 0, True

    def on_header(self, name: bytes, value: bytes) -> None:
        # A body without either of these is one that lasts until the server closes.
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._until_end = False

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()

    def on_body(self, piece: bytes) -> None:
        if self._receive is not None:
            self._receive(self._status, piece, self._now)

    def on_message_complete(self) -> None:
        if not 100 <= self._status < 200:
            self.reusable = self.reusable and self._parser.should_keep_alive()
            self._finish()

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(self._status)

    def _fail(self, reason: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(HttpError(reason))


def _tls(verify: ssl.SSLContext | bool) -> ssl.SSLContext:
    if isinstance(verify, ssl.SSLContext):
        return verify
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _header(name: str, value: str) -> str:
    if any(character in name + value for character in "\r\n\0"):
        raise HttpError(f"header {name!r} holds a line break")
    return value
