"""One web socket of a route plugin, opened in this process: what its client is told, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from starlette.types import Message

from core.server.plugin_routes.socket import LEFT_SECONDS
from core.server.state import Lifecycle
from core_testing.conformance.tools.route_bench import ADMIN_KEY, RouteBench

ACCEPTED = 101
"""Status of a socket that was opened, as the server counts it."""

SECONDS = 5.0
"""How long a client waits for what it is due."""

_QUIET = 0.04
"""Seconds without a word, after which nothing more is said to messages that mean nothing."""

_TURN = 0.005


@dataclass
class Said:
    """Messages that a client got, and how its socket ended.

    Attributes:
        status: `ACCEPTED`, or that of the refusal; 0: nothing came.
        body: Of the refusal.
        messages: In order, texts as bytes.
        code: That the socket was closed with, where the server's side closed it.
        ended: Whether its endpoint has ended.
        running: Generations that go on behind it.
    """

    status: int = 0
    body: bytes = b""
    messages: list[bytes] = field(default_factory=list)
    code: int | None = None
    ended: bool = False
    running: int = 0

    @property
    def text(self) -> bytes:
        """All messages one behind the other, or the refusal."""
        return self.body or b"".join(self.messages)


class SocketClient:
    """A client that says all that it has to say, waits, and leaves; or that the server leaves."""

    def __init__(self, bench: RouteBench) -> None:
        self._bench = bench
        self._said = Said()
        self._due: asyncio.Queue[Message] = asyncio.Queue()

    def talk(
        self,
        path: str,
        messages: Sequence[str | bytes],
        *,
        query: Mapping[str, str] | None = None,
        done: Callable[[Said], bool] | None = None,
        server_ends: bool = False,
    ) -> Said:
        """Open a socket and return what was said.

        Args:
            done: Whether the client has what it waits for; None: it leaves once nothing more comes.
            server_ends: The server ends in place of the client.
        """
        return asyncio.run(self._talk(path, messages, query or {}, done, server_ends=server_ends))

    async def _talk(
        self,
        path: str,
        messages: Sequence[str | bytes],
        query: Mapping[str, str],
        done: Callable[[Said], bool] | None,
        *,
        server_ends: bool,
    ) -> Said:
        said = self._said
        scope = {**_SCOPE, "path": path, "raw_path": path.encode(), "query_string": urlencode(query).encode()}
        self._due.put_nowait({"type": "websocket.connect"})
        task = asyncio.ensure_future(self._bench.app(scope, self._due.get, self._take))
        await _until(lambda: said.status != 0 or task.done(), SECONDS)
        for message in messages:
            kind = "text" if isinstance(message, str) else "bytes"
            self._due.put_nowait({"type": "websocket.receive", kind: message})
        await (self._quiet(task) if done is None else _until(lambda: done(said) or self._over(task), SECONDS))
        if server_ends:
            await _lifecycle(self._bench).dismiss(LEFT_SECONDS + 1)
        self._due.put_nowait({"type": "websocket.disconnect", "code": 1005})
        said.ended = await _until(task.done, LEFT_SECONDS + 1)
        task.cancel()
        await asyncio.wait({task}, timeout=1.0)
        await _until(lambda: not self._bench.llm.running, 1.0)
        said.running = self._bench.llm.running
        return said

    async def _take(self, message: Message) -> None:
        said, kind = self._said, message["type"]
        if kind == "websocket.accept":
            said.status = ACCEPTED
        elif kind == "websocket.send":
            text = message.get("text")
            said.messages.append(message["bytes"] if text is None else text.encode())
        elif kind == "websocket.close":
            said.code = message.get("code", 1000)
        elif kind == "websocket.http.response.start":
            said.status = message["status"]
        elif kind == "websocket.http.response.body":
            said.body += message.get("body", b"")

    async def _quiet(self, task: asyncio.Future[None]) -> None:
        """Wait until all was heard and nothing more is said for a while."""
        known = -1
        for _ in range(int(SECONDS / _QUIET)):
            if self._over(task) or (self._due.empty() and known == len(self._said.messages)):
                return
            known = len(self._said.messages)
            await _until(lambda: self._over(task), _QUIET)

    def _over(self, task: asyncio.Future[None]) -> bool:
        return task.done() or self._said.code is not None


def _lifecycle(bench: RouteBench) -> Lifecycle:
    found: Lifecycle = bench.app.state.core.lifecycle
    return found


async def _until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition; return whether it came true."""
    for _ in range(int(seconds / _TURN)):
        if condition():
            return True
        await asyncio.sleep(_TURN)
    return condition()


_SCOPE = {
    "type": "websocket",
    "asgi": {"version": "3.0", "spec_version": "2.3"},
    "http_version": "1.1",
    "root_path": "",
    "scheme": "ws",
    "headers": [(b"host", b"kit"), (b"x-api-key", ADMIN_KEY.encode())],
    "client": ("127.0.0.1", 1),
    "server": ("kit", 80),
    "subprotocols": [],
    "extensions": {"websocket.http.response": {}},
}
