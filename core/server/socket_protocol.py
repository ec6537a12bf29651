"""Web sockets on the wire: uvicorn's protocol over `websockets`, and which requests may become one."""

from __future__ import annotations

from collections.abc import Iterable

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MAX_LINE = 8000
MAX_LINES = 100
"""Of the head of a request that becomes a socket: its library reads a little more."""

_BODIES = frozenset({b"content-length", b"transfer-encoding"})
_REFUSED = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class SocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol; a head that the library cannot read is refused."""

    async def send(self, message: ASGISendEvent) -> None:
        """Send; a refusal that has been sent completes the handshake, which the log is told of otherwise."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def handle_parser_exception(self) -> None:
        """Close, with a reason where the socket is open."""
        if self.conn.close_sent is not None:
            super().handle_parser_exception()
            return
        self.transport.write(_REFUSED)
        self.transport.close()


def is_plain(method: bytes, version: str, url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether the head of a request is one that web sockets begin with: GET, HTTP/1.1, and no body."""
    names = [name for name, _ in headers]
    return method == b"GET" and version == "1.1" and url.isascii() and _BODIES.isdisjoint(names)


def is_short(url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether a head is within what the library of web sockets reads."""
    lines = [len(name) + len(value) for name, value in headers]
    return len(lines) <= MAX_LINES and max([len(url), *lines]) <= MAX_LINE
