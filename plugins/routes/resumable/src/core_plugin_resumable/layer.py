"""Takes the connection out from between a client and its stream, for requests that ask for it.

The application answers into a buffer, in a task of its own; the connection reads from the buffer. It may break, and
another one may read on, while the application notices nothing. Whatever is no event stream passes straight through.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from core.api import EngineClient
from core.api.middleware import SHORT_CUT, AsgiApp, Message, Receive, Scope, Send
from core_plugin_resumable.store import Stream, StreamStore

ASKS, ID_HEADER = b"x-resumable-stream", b"x-stream-id"
_YES = frozenset({b"1", b"true", b"yes"})
_DISCONNECT: Message = {"type": "http.disconnect"}


class ResumeLayer:
    """ASGI middleware around the routes.

    Args:
        app: The routes.
        store: Keeps the events.
        client: Logs what goes wrong when no connection is left to hear of it.
    """

    def __init__(self, app: AsgiApp, store: StreamStore, client: EngineClient) -> None:
        self._app, self._store, self._client = app, store, client
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; answer one that asks for a resumable stream through a buffer."""
        if scope["type"] != "http" or not _asks(scope):
            await self._app(scope, receive, send)
            return
        session = Session(self._store, self._client, scope["path"], send)
        task = asyncio.create_task(self._answer(scope, session))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(session.ended)
        await session.run(task, receive)

    async def _answer(self, scope: Scope, session: Session) -> None:
        scope[SHORT_CUT] = session.send
        await self._app(scope, session.receive, session.send)


class Session:
    """One request: what the application receives and sends, and what the connection gets."""

    def __init__(self, store: StreamStore, client: EngineClient, path: str, send: Send) -> None:
        self._store, self._client, self._path, self._send = store, client, path, send
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._left = asyncio.Event()
        self._opened = asyncio.Event()
        self._stream: Stream | None = None
        self._half = b""
        self._start: Message = {}
        self._token: object = None

    async def run(self, task: asyncio.Task[None], receive: Receive) -> None:
        """Serve the connection; the application's own errors before the stream are raised."""
        pump = asyncio.create_task(self._pump(receive))
        opened = asyncio.create_task(self._opened.wait())
        try:
            await asyncio.wait((task, opened), return_when=asyncio.FIRST_COMPLETED)
            if self._stream is None:
                await task
                return
            await self._send(self._start)
            await deliver(self._store.events(self._stream, self._token), self._send, self._left)
        finally:
            opened.cancel()
            pump.cancel()
            if self._stream is not None:
                self._store.detach(self._stream, self._token)
            if self._stream is None and not task.done():
                task.cancel()

    async def receive(self) -> Message:
        """Return the application's next message: the body, or that nobody wants the answer any more."""
        return await self._inbox.get()

    async def send(self, message: Message) -> None:
        """Take what the application sends."""
        if message["type"] == "http.response.start" and _is_events(message):
            self._open(message)
        elif self._stream is None:
            await self._send(message)
        elif message["type"] == "http.response.body":
            await self._add(self._stream, message.get("body", b""), last=not message.get("more_body", False))

    def ended(self, task: asyncio.Task[None]) -> None:
        """The application has returned, or failed."""
        if self._stream is None:
            return
        self._store.finish(self._stream)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._client.error(error)

    def _open(self, message: Message) -> None:
        headers = list(message.get("headers", ()))
        self._stream = self._store.open(self._path, headers, lambda: self._inbox.put_nowait(_DISCONNECT))
        self._token = self._store.attach(self._stream, 0)
        self._start = {**message, "headers": [*headers, (ID_HEADER, self._stream.id.encode())]}
        self._opened.set()

    async def _add(self, stream: Stream, data: bytes, *, last: bool) -> None:
        *events, self._half = (self._half + data).split(b"\n\n")
        if last and self._half:
            events.append(self._half)
        for event in events:
            await self._store.append(stream, event)

    async def _pump(self, receive: Receive) -> None:
        """Hand the body to the application; once its stream is open, a client that leaves is none of its business."""
        while (message := await receive())["type"] != "http.disconnect":
            self._inbox.put_nowait(message)
        self._left.set()
        if self._stream is None:
            self._inbox.put_nowait(message)


async def deliver(events: AsyncGenerator[bytes, None], send: Send, left: asyncio.Event) -> None:
    """Write events as a response's body until they end or the client leaves."""
    writing = asyncio.create_task(_write(events, send))
    leaving = asyncio.create_task(left.wait())
    try:
        await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if writing.done():
            writing.result()
    finally:
        leaving.cancel()
        if not writing.done():
            writing.cancel()
            await asyncio.wait((writing,))


async def _write(events: AsyncGenerator[bytes, None], send: Send) -> None:
    async with aclosing(events) as reading:
        async for data in reading:
            await send({"type": "http.response.body", "body": data, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _asks(scope: Scope) -> bool:
    return any(name == ASKS and value.lower() in _YES for name, value in scope["headers"])


def _is_events(message: Message) -> bool:
    headers = message.get("headers", ())
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers)
