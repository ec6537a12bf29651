"""One web socket of a plugin: its messages, and how it ends, whoever ends it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from starlette.requests import HTTPConnection
from starlette.types import Message, Receive, Scope, Send

from core.plugins.drivers import describe
from core.server.account import note_error
from core.server.errors import INTERNAL, ApiError, ClientGoneError, as_api_error, log_unexpected
from core.server.plugin_routes.head import RequestHead
from core.server.plugin_routes.route import PluginRoute
from core.server.state import ServerState
from core.server.streaming import stopping

logger = logging.getLogger(__name__)

LEFT_SECONDS = 2.0
"""How long an endpoint goes on whose client has left, or that knows that the server ends."""

MAX_WAITING = 1024
MAX_WAITING_BYTES = 2**20
"""Messages that nobody has received yet, and their bytes, behind which no more is read from the client."""

NORMAL, GOING_AWAY, REFUSED, TOO_BIG, BROKEN, LATER = 1000, 1001, 1008, 1009, 1011, 1013
_CODES = frozenset({1000, 1001, 1003, *range(1007, 1014), *range(3000, 5000)})
_REASON_BYTES = 123


class PluginSocket(RequestHead[HTTPConnection]):
    """`RouteSocket` over the server's own messages.

    Args:
        scope, receive, send: The connection's.
        state: What the routes share.
        route: Whose it is.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, state: ServerState, route: PluginRoute) -> None:
        super().__init__(HTTPConnection(scope))
        self._receive, self._send = receive, send
        self._state, self._route = state, route
        self._limit = state.options.server.max_body_bytes
        self._messages: deque[str | bytes] = deque()
        self._bytes = 0
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._accepted = self._closed = self._gone = self._leaving = False
        self._work: asyncio.Task[None] | None = None
        self._late: asyncio.TimerHandle | None = None

    @property
    def subprotocols(self) -> Sequence[str]:
        """Subprotocols that the client offers."""
        return tuple(self._request.scope.get("subprotocols", ()))

    # -- for the endpoint ------------------------------------------------------------------------------------------

    async def accept(self, subprotocol: str | None = None) -> None:
        """Open the socket."""
        if self._accepted or self._closed:
            raise RuntimeError("the socket was accepted or closed before")
        if subprotocol is not None and subprotocol not in self.subprotocols:
            raise ValueError(f"the client offers no subprotocol {subprotocol!r}")
        self._accepted = True
        await self._put({"type": "websocket.accept", "subprotocol": subprotocol, "headers": []})

    async def receive(self) -> str | bytes | None:
        """Return the next message, or None."""
        if not self._accepted:
            raise RuntimeError("the socket is not accepted")
        while not (self._messages or self._ended):
            self._news.clear()
            await self._news.wait()
        if self._leaving or not self._messages:
            await asyncio.sleep(0)  # whoever asks again and again would keep the event loop, and not be ended in time
            return None
        message = self._messages.popleft()
        self._bytes -= len(message)
        self._room.set()
        return message

    async def send(self, message: str | bytes) -> None:
        """Send a message."""
        if not isinstance(message, (str, bytes)):
            raise TypeError(f"a message is a text or bytes, not a {type(message).__name__}")
        if not self._accepted or (self._closed and not self._gone):
            raise RuntimeError("the socket is not open")
        kind = "text" if isinstance(message, str) else "bytes"
        await self._put({"type": "websocket.send", kind: message})

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Close the socket."""
        if code not in _CODES:
            raise ValueError(f"{code} is no code to close a socket with")
        if self._closed or self._gone:
            return
        self._closed = True
        if self._accepted:
            told = reason.encode("utf-8", "replace")[:_REASON_BYTES].decode("utf-8", "ignore")
            await self._put({"type": "websocket.close", "code": code, "reason": told})

    # -- for the server --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the endpoint to its end, and close.

        Raises:
            ApiError: It was refused before it was accepted; or how it ended, which its client has been told.
            ClientGoneError: The client left before that.
        """
        lifecycle = self._state.lifecycle
        pump = asyncio.create_task(self._pump())
        self._work = asyncio.create_task(self._endpoint())
        lifecycle.sockets[self._work] = self.leave
        try:
            await self._work
            error = None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            error = None if self._gone else stopping()
        except Exception as raised:
            error = self._fault(raised)
        finally:
            pump.cancel()
            if self._late is not None:
                self._late.cancel()
            del lifecycle.sockets[self._work]
        await self._end(error)

    def leave(self) -> None:
        """Let the endpoint know that the server ends: it has a moment to say so."""
        self._leaving = True
        self._finish_soon()

    async def _endpoint(self) -> None:
        await self._route.endpoint(self)  # type: ignore[arg-type]

    async def _end(self, error: ApiError | None) -> None:
        if self._gone and not self._accepted:
            raise ClientGoneError
        if not self._accepted:
            raise error or ApiError(403, "The socket was not accepted.", code="socket_refused")
        if error is None:
            await self._finish(GOING_AWAY if self._leaving else NORMAL, "")
            return
        note_error(error)
        if self._leaving or self._state.lifecycle.stopped:
            await self._finish(GOING_AWAY, "The server is shutting down.")
        elif error.code == "CORE-P108" or error.status == 500:
            await self._finish(BROKEN, "")
        else:
            await self._finish(LATER if error.status in (429, 503) else REFUSED, error.told().message)

    async def _finish(self, code: int, reason: str) -> None:
        try:
            await self.close(code, reason)
        except asyncio.CancelledError:
            if not self._gone:
                raise

    def _fault(self, raised: Exception) -> ApiError:
        """Return what the endpoint raised as an error; the log says it if it is the plugin's."""
        error = as_api_error(raised)
        if error.code != INTERNAL:
            log_unexpected(raised)
            return error
        owner = self._route.owner
        logger.error("CORE-P108 route plugin %s: socket %s raised %s", owner, self._route.path, describe(raised))
        return ApiError(500, f"Route plugin {owner} failed (CORE-P108).", code="CORE-P108")

    @property
    def _ended(self) -> bool:
        return self._gone or self._leaving or self._closed

    async def _put(self, message: Message) -> None:
        """Send, unless nobody is there any more: then the endpoint ends."""
        if not self._gone:
            try:
                await self._send(message)
                # Writing need not wait for anything, nor tell that the connection broke: an endpoint that only sends
                # would keep the event loop, which then never learns that nobody reads.
                await asyncio.sleep(0)
                return
            except OSError:  # the server's way to say so
                self._lost()
        if self._work is not None:
            self._work.cancel()
        await asyncio.sleep(0)

    async def _pump(self) -> None:
        """Read what the client says, a little ahead of the endpoint, so that its leaving is noticed."""
        while (message := await self._receive())["type"] != "websocket.disconnect":
            if message["type"] != "websocket.receive":
                continue
            text = message.get("text")
            said: str | bytes = message["bytes"] if text is None else text
            if len(said) > self._limit:
                await self.close(TOO_BIG)
                break
            self._messages.append(said)
            self._bytes += len(said)
            self._news.set()
            while len(self._messages) > MAX_WAITING or self._bytes > MAX_WAITING_BYTES:
                self._room.clear()
                await self._room.wait()
        self._lost()

    def _lost(self) -> None:
        self._gone = True
        self._finish_soon()

    def _finish_soon(self) -> None:
        self._news.set()
        if self._late is None and self._work is not None:
            self._late = asyncio.get_running_loop().call_later(LEFT_SECONDS, self._work.cancel)
