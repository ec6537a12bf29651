"""Limits on a request as it arrives: the size and time of its head, and silence within its body."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from core.api.middleware import SHORT_CUT
from core.server.dialect import DEFAULT, error_answer
from core.server.errors import ApiError
from core.server.socket_protocol import is_plain, is_short
from core.server.wire import Wire

MAX_HEAD_BYTES = 64 * 2**10
MAX_HEADERS = 128
HEAD_SECONDS = 30.0
BODY_SILENCE_SECONDS = 20.0
"""How long a client may send nothing in the middle of a body."""

MAX_AHEAD = 8
_LINE_OVERHEAD = 4  # colon, space, line end


class HeadTooLargeError(Exception):
    """Raised inside the parser to stop it."""


class AmbiguousHeadError(Exception):
    """Raised inside the parser to stop it: servers on the way may have read the request in another sense."""


class LimitedHttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol; refuses heads that are too large, too slow or ambiguous, and bodies that stop half-way.

    It answers in the API's error shape.

    Args:
        on_refused: Told of what it answers.
    """

    def __init__(self, *args: Any, on_refused: Callable[[ApiError], None] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._on_refused = on_refused
        self._in_head = False
        self._refused = False
        self._size = 0  # of what the parser has reported
        self._held = 0  # of what it has not
        self._calls = 0
        self._hosts = 0
        self._in_body = False
        self._timer: asyncio.TimerHandle | None = None
        self._open: deque[RequestResponseCycle] = deque()
        self._upgrades = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the client a while to say what it wants."""
        super().connection_made(transport)
        self._arm(HEAD_SECONDS, self.transport.close)

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
        elif self._in_body and not self._refused:
            self._arm(BODY_SILENCE_SECONDS, self._silent)

    def on_message_begin(self) -> None:
        """Start counting."""
        super().on_message_begin()
        self._in_head = True
        self._size = self._held = self._hosts = 0
        self._calls += 1
        self._arm(HEAD_SECONDS, self.transport.close)

    def on_url(self, url: bytes) -> None:
        """Count the target."""
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._grow(len(name) + len(value) + _LINE_OVERHEAD)
        super().on_header(name, value)
        if name.lower() == b"host":
            self._hosts += 1
            if self._hosts > 1:
                raise AmbiguousHeadError
        if len(self.headers) > MAX_HEADERS:
            self._size = MAX_HEAD_BYTES + 1
            raise HeadTooLargeError

    def on_headers_complete(self) -> None:
        """Stop counting."""
        self._in_head, self._in_body = False, True
        self._disarm()
        self._upgrades = self._may_upgrade()
        super().on_headers_complete()
        if self._upgrades:
            self._in_body = False
        elif self.cycle is not None:  # its task has not begun yet
            self.cycle.scope[SHORT_CUT] = Wire(self.cycle)  # type: ignore[literal-required]
            self._open.append(self.cycle)
            if 1 < len(self._open) <= MAX_AHEAD:
                self.flow.resume_reading()  # or nobody would see the client leave before the first answer ends

    def _may_upgrade(self) -> bool:
        """Whether the request becomes a web socket; one that no socket begins with is answered as if it said nothing.

        One behind a request that waits for its answer is among these: the connection is not free.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if not super()._should_upgrade() or self._open or not is_plain(method, version, self.url, self.headers):
            return False
        if not is_short(self.url, self.headers):
            self._size = MAX_HEAD_BYTES + 1
            raise HeadTooLargeError
        return True

    def _should_upgrade(self) -> bool:
        return self._upgrades

    def on_message_complete(self) -> None:
        """Wait for nothing any more."""
        self._in_body = False
        self._disarm()
        super().on_message_complete()

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
        self._answer(error, status)
        self.transport.close()

    def _answer(self, error: ApiError, status: bytes) -> None:
        """Write an answer that no application gives."""
        if self._on_refused is not None:
            self._on_refused(error)
        body = bytes(error_answer(DEFAULT, error).body)
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status, len(body)) + body)

    def _grow(self, size: int) -> None:
        self._size += size
        self._held = 0
        self._calls += 1
        if self._too_large():
            raise HeadTooLargeError

    def _too_large(self) -> bool:
        return self._size + self._held > MAX_HEAD_BYTES

    def _arm(self, seconds: float, late: Callable[[], None]) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _silent(self) -> None:
        """Close, with an answer if none has begun; a client that was not read from is not the one who is silent."""
        if self.flow.read_paused:
            self._arm(BODY_SILENCE_SECONDS, self._silent)
            return
        if len(self._open) == 1 and not self._open[0].response_started:
            message = f"Nothing of the body came for {BODY_SILENCE_SECONDS:g} s."
            self._answer(ApiError(408, message, code="body_too_slow"), b"408 Request Timeout")
        self._refused = True
        self.transport.close()
