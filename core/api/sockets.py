"""Web sockets of route plugins: messages both ways for as long as both sides want. Provisional."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol


class RouteSocket(Protocol):
    """One web socket. It has passed the key check, and comes from no web page whose origin is not allowed.

    Attributes:
        path: Path without the query.
        path_params: Values of the path's `{name}` parts.
        query: Query parameters; of a repeated one, the last.
        headers: Header names in lower case.
        subprotocols: Those that the client offers.
    """

    @property
    def path(self) -> str: ...

    @property
    def path_params(self) -> Mapping[str, str]: ...

    @property
    def query(self) -> Mapping[str, str]: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def subprotocols(self) -> Sequence[str]: ...

    async def accept(self, subprotocol: str | None = None) -> None:
        """Open the socket. A `RequestError` that is raised in place of it is answered with its status.

        Args:
            subprotocol: One of those that the client offers; None: none of them.
        """
        ...

    async def receive(self) -> str | bytes | None:
        """Return the client's next message; None once the client has left, or the server ends.

        Messages have at most as many bytes as bodies of requests; larger ones close the socket with 1009.
        """
        ...

    async def send(self, message: str | bytes) -> None:
        """Send a message once there is room for it. It ends the endpoint, as cancelled, whose client has left."""
        ...

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the socket; one that is not yet accepted is refused with 403, and nothing happens to a closed one.

        Args:
            code: 1000, 1001, 1003, 1007 to 1013, or 3000 to 4999.
            reason: For the client; what is beyond 123 bytes is cut off.
        """
        ...


SocketEndpoint = Callable[[RouteSocket], Awaitable[None]]
"""The socket ends with it. `RequestError` raised after `accept` closes with its message and 1008, or 1013 where its
status is 429 or 503; anything else with 1011, without details."""
