"""One answer's way to its connection, with a shorter one for pieces of a body."""

from __future__ import annotations

from starlette.types import Message
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class Wire:
    """ASGI's `send` of one request, which can also write without a coroutine."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    async def __call__(self, message: Message) -> None:
        """Send a message, once the client keeps up."""
        await self._cycle.send(message)  # type: ignore[arg-type]

    def at_once(self, data: bytes) -> bool:
        """Write a piece of a body; False, and nothing is written, if the client is behind or the body is no stream.

        What a client that is gone does not get is thrown away, as `send` does.
        """
        cycle = self._cycle
        if cycle.disconnected or not data:  # an empty chunk would end the body
            return True
        if cycle.flow.write_paused or not cycle.chunked_encoding or cycle.response_complete:
            return False
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True
