"""The events of resumable streams, in bounded memory."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from core.api import RequestError

SHARE = 8
"""One stream may fill this part of the memory for all."""

STREAM_BYTES = 2048
"""Bytes that a stream takes beside its events, so that many short ones are bounded as well."""


@dataclass(slots=True)
class Stream:
    """One stream's events.

    Attributes:
        path: Route that it answers.
        headers: Of its answer.
        events: Kept ones, encoded with their numbers; `first` is the number of the oldest.
        sent: Number of the last event that its reader was given.
        reader: Whoever reads now.
        finished: No event follows.
        gone: Nobody can read it any more.
        on_gone: Called once when that happens before the end.
    """

    path: str
    headers: list[tuple[bytes, bytes]]
    on_gone: Callable[[], None]
    id: str = field(default_factory=lambda: f"stream-{secrets.token_urlsafe(18)}")
    created: int = field(default_factory=lambda: int(time.time()))
    events: deque[bytes] = field(default_factory=deque)
    first: int = 1
    size: int = 0
    sent: int = 0
    reader: object | None = None
    finished: bool = False
    gone: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None

    @property
    def last(self) -> int:
        """Number of the newest event; 0 without any."""
        return self.first + len(self.events) - 1


class StreamStore:
    """All resumable streams. Everything happens on the event loop's thread.

    Args:
        seconds: How long a stream without a reader is kept, running or finished.
        max_bytes: Most memory for the events of all streams.
    """

    def __init__(self, seconds: float, max_bytes: int) -> None:
        self._seconds, self._max_bytes = seconds, max_bytes
        self._streams: dict[str, Stream] = {}
        self._size = 0
        self._room = asyncio.Event()

    @property
    def size(self) -> int:
        """Bytes of all streams."""
        return self._size

    def open(self, path: str, headers: list[tuple[bytes, bytes]], on_gone: Callable[[], None]) -> Stream:
        """Add a stream; it is dropped if nobody begins to read it in time."""
        stream = Stream(path, headers, on_gone)
        self._streams[stream.id] = stream
        self._size += STREAM_BYTES
        self._wait_for_reader(stream)
        return stream

    def find(self, name: str) -> Stream:
        """Return a stream by its id. Raises `RequestError` 404."""
        stream = self._streams.get(name)
        if stream is None:
            message = "There is no such stream: it ended, or its time ran out."
            raise RequestError(message, code="stream_not_found", status=404)
        return stream

    def all(self) -> list[Stream]:
        """Return the streams, oldest first."""
        return list(self._streams.values())

    async def append(self, stream: Stream, event: bytes) -> None:
        """Number an event (without its blank line) and keep it; what a gone stream brings is thrown away.

        Waits while there is no room: a reader makes some, or the stream's time runs out.
        """
        data = b"id: %d\n%b\n\n" % (stream.last + 1, event)
        while not (stream.gone or self._make_room(stream, len(data))):
            self._room.clear()
            await self._room.wait()
        if stream.gone:
            return
        stream.events.append(data)
        stream.size += len(data)
        self._size += len(data)
        stream.news.set()

    def finish(self, stream: Stream) -> None:
        """No event follows."""
        stream.finished = True
        stream.news.set()

    def drop(self, stream: Stream) -> None:
        """Forget a stream; a generation behind it ends. Harmless when repeated."""
        if stream.gone:
            return
        stream.gone = True
        if stream.timer is not None:
            stream.timer.cancel()
        del self._streams[stream.id]
        self._size -= STREAM_BYTES
        self._forget(stream, len(stream.events))
        stream.news.set()
        self._room.set()
        if not stream.finished:
            stream.on_gone()

    def attach(self, stream: Stream, after: int) -> object:
        """Make the caller the stream's reader, from the event behind number `after`, and return its token.

        Whoever read before stops. Undone by `detach`.

        Raises:
            RequestError: 400 for a number that was never sent, 410 for one whose successors are not kept any more.
        """
        if after > stream.last:
            message = f"The stream has no event {after} yet."
            raise RequestError(message, param="Last-Event-ID", code="no_such_event")
        if after + 1 < stream.first:
            message = f"Events before {stream.first} are not kept any more."
            raise RequestError(message, param="Last-Event-ID", code="events_dropped", status=410)
        if stream.timer is not None:
            stream.timer.cancel()
            stream.timer = None
        stream.reader, stream.sent = object(), after
        stream.news.set()
        return stream.reader

    def detach(self, stream: Stream, token: object) -> None:
        """Stop reading; without another reader the stream's time runs from now."""
        if stream.reader is token:
            stream.reader = None
            self._wait_for_reader(stream)

    async def events(self, stream: Stream, token: object) -> AsyncGenerator[bytes, None]:
        """Yield the reader's events, what has gathered at once, until the stream or the reader's turn ends."""
        while stream.reader is token:
            stream.news.clear()
            fresh = [stream.events[i] for i in range(stream.sent + 1 - stream.first, len(stream.events))]
            if fresh:
                stream.sent += len(fresh)
                self._room.set()
                yield b"".join(fresh)
            elif stream.finished or stream.gone:
                return
            else:
                await stream.news.wait()

    def _make_room(self, stream: Stream, size: int) -> bool:
        """Free memory for `size` bytes: finished streams first, then what this one's reader has."""
        while self._size + size > self._max_bytes:
            oldest = next((one for one in self._streams.values() if one.finished and one.reader is None), None)
            if oldest is None:
                break
            self.drop(oldest)
        while stream.events and not self._fits(stream, size) and stream.first <= stream.sent:
            self._forget(stream, 1)
        # A single event is taken whatever its size, so that a stream always moves on.
        return not stream.events or self._fits(stream, size)

    def _fits(self, stream: Stream, size: int) -> bool:
        return self._size + size <= self._max_bytes and stream.size + size <= self._max_bytes // SHARE

    def _forget(self, stream: Stream, count: int) -> None:
        for _ in range(count):
            size = len(stream.events.popleft())
            stream.first += 1
            stream.size -= size
            self._size -= size

    def _wait_for_reader(self, stream: Stream) -> None:
        if not stream.gone:
            stream.timer = asyncio.get_running_loop().call_later(self._seconds, self.drop, stream)
