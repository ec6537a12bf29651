"""The body of a stream on its way out: written in the turn in which it is made, as long as the client keeps up."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.types import Message, Send

from core.api.serving import Outlet


class StreamBody:
    """An `Outlet` over a connection.

    Args:
        head: Starts the answer; sent in front of the first data.
        send: Where the head goes.
        write: Where the body goes. What has a method `at_once`, as `Wire`, needs no task to be waited in.

    Attributes:
        open: Whether the head was sent.
    """

    __slots__ = (
        "_at_once",
        "_head",
        "_kept",
        "_send",
        "_write",
        "open",
    )

    def __init__(self, head: Message, send: Send, write: Send) -> None:
        self._head, self._send, self._write = head, send, write
        self._at_once: Any = getattr(write, "at_once", None)
        self._kept = b""
        self.open = False

    def put(self, data: bytes) -> bool:
        """Write data if that can be done at once, or keep it for `room`."""
        in_turn = self.open and not self._kept  # nothing overtakes what waits for a client that was behind
        if in_turn and self._at_once is not None and self._at_once(data):
            return True
        self._kept += data
        return False

    async def room(self) -> None:
        """Send what was kept, behind the head; wait for a client that is behind."""
        await self._begin()
        if self._kept:
            data, self._kept = self._kept, b""
            await self._write({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes) -> None:
        """Send the last data."""
        await self._begin()
        await self._write({"type": "http.response.body", "body": self._kept + data})

    async def _begin(self) -> None:
        if not self.open:
            await self._send(self._head)
            self.open = True  # not before: whoever is cancelled while the client is behind has sent nothing


async def pour(events: AsyncGenerator[bytes, None], outlet: Outlet) -> None:
    """Put events into an outlet until they end; they are closed whatever happens."""
    async with aclosing(events):
        async for data in events:
            if not outlet.put(data):
                await outlet.room()
