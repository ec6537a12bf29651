"""Limits on the head of a request, enforced while its bytes arrive."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from core.server.dialect import OPENAI
from core.server.errors import ApiError
from core.server.outlet import SHORT_CUT
from core.server.wire import Wire

MAX_HEAD_BYTES = 64 * 2**10
MAX_HEADERS = 128
HEAD_SECONDS = 30.0
MAX_AHEAD = 8
_LINE_OVERHEAD = 4  # colon, space, line end


class HeadTooLargeError(Exception):
    """Raised inside the parser to stop it."""


class LimitedHttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol; refuses heads that are too large or too slow, and answers in the API's error shape."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = False
        self._refused = False
        self._size = 0  # of what the parser has reported
        self._held = 0  # of what it has not
        self._calls = 0
        self._timer: asyncio.TimerHandle | None = None
        self._open: deque[RequestResponseCycle] = deque()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the client a while to say what it wants."""
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer; tell every request that its client is gone, not only the one that came last."""
        self._disarm()
        for cycle in self._open:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and count what it keeps to itself: a header that has not ended yet."""
        if self._refused:
            return
        before = self._calls
        super().data_received(data)
        if self._in_head and self._calls == before and not self._refused:
            self._held += len(data)
            if self._too_large():
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """Start counting."""
        super().on_message_begin()
        self._in_head = True
        self._size = self._held = 0
        self._calls += 1
        self._arm()

    def on_url(self, url: bytes) -> None:
        """Count the target."""
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._grow(len(name) + len(value) + _LINE_OVERHEAD)
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self._size = MAX_HEAD_BYTES + 1
            raise HeadTooLargeError

    def on_headers_complete(self) -> None:
        """Stop counting."""
        self._in_head = False
        self._disarm()
        super().on_headers_complete()
        if self.cycle is not None:  # its task has not begun yet
            self.cycle.scope[SHORT_CUT] = Wire(self.cycle)  # type: ignore[literal-required]
            self._open.append(self.cycle)
            if 1 < len(self._open) <= MAX_AHEAD:
                self.flow.resume_reading()  # or nobody would see the client leave before the first answer ends

    def on_response_complete(self) -> None:
        """Go on to the next request."""
        self._open.popleft()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, and close; behind a request that waits for its answer, say nothing."""
        self._refused = True
        self._disarm()
        if self._open and (self._open[0].response_started or not self._open[0].more_body):
            self.transport.close()
            return
        if self._too_large():
            error = ApiError(431, "The head of the request is too large.", code="head_too_large")
            status = b"431 Request Header Fields Too Large"
        else:
            error, status = ApiError(400, "This is not an HTTP request.", code="invalid_http"), b"400 Bad Request"
        body = bytes(OPENAI.response(error).body)
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status, len(body)) + body)
        self.transport.close()

    def _grow(self, size: int) -> None:
        self._size += size
        self._held = 0
        self._calls += 1
        if self._too_large():
            raise HeadTooLargeError

    def _too_large(self) -> bool:
        return self._size + self._held > MAX_HEAD_BYTES

    def _arm(self) -> None:
        self._disarm()
        self._timer = self.loop.call_later(HEAD_SECONDS, self._late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self.transport.close()
