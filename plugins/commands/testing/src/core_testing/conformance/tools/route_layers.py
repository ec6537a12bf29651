"""One layer of a route plugin around an application of the kit's: does it let through what is not its own?"""

from __future__ import annotations

import asyncio
from typing import Any

from core.api.errors import RequestError
from core.api.middleware import SHORT_CUT, Message, Receive, Scope, Send
from core.server.plugin_routes.layer import PluginLayer
from core_testing.conformance.outcome import Failed, require

_SECONDS = 5.0
_HEADERS = [(b"content-type", b"text/plain"), (b"x-kit", b"1"), (b"x-kit", b"2")]
_STATUS = 207
_PIECES = (b"one", b"two", b"three")
_LEAVES: Message = {"type": "http.disconnect"}


class ProbedLayer:
    """The layer, and what a connection gets through it."""

    def __init__(self, layer: PluginLayer) -> None:
        self._layer = layer

    def probe(self) -> None:
        """Send requests through it. Raises `Failed`."""
        for short_cut in (False, True):
            self._run(self._answers(short_cut=short_cut))
        self._run(self._leaves())
        self._run(self._fails())

    def _run(self, probe: Any) -> None:
        async def bounded() -> None:
            await asyncio.wait_for(probe, _SECONDS)

        try:
            asyncio.run(bounded())
        except TimeoutError:
            raise Failed("a request does not come through its layer, or its end does not") from None

    async def _answers(self, *, short_cut: bool) -> None:
        got: list[bytes] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            got.append((await receive()).get("body", b""))
            await send({"type": "http.response.start", "status": _STATUS, "headers": list(_HEADERS)})
            write = scope.get(SHORT_CUT, send) if short_cut else send
            for piece in _PIECES:
                await write({"type": "http.response.body", "body": piece, "more_body": True})
            await write({"type": "http.response.body", "body": b""})

        sent = await self._ask(app)
        require(got == [b"asked"], "its layer does not pass on the body of a request")
        require(bool(sent) and sent[0].get("status") == _STATUS, f"its layer gives another status than {_STATUS}")
        lost = [one for one in _HEADERS if one not in list(sent[0].get("headers", ()))]
        require(not lost, f"its layer loses headers of an answer: {lost}")
        body = b"".join(message.get("body", b"") for message in sent[1:])
        require(body == b"".join(_PIECES), f"its layer makes {body!r} of {b''.join(_PIECES)!r}")
        require(not sent[-1].get("more_body", False), "its layer does not end an answer")

    async def _leaves(self) -> None:
        seen: list[str] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            seen.append((await receive())["type"])

        await self._ask(app)
        require(seen == [_LEAVES["type"]], "its layer does not say that a client has left")

    async def _fails(self) -> None:
        for error in (RequestError("the kit refuses", status=418), RuntimeError("the kit fails")):

            async def app(scope: Scope, receive: Receive, send: Send, error: Exception = error) -> None:
                raise error

            try:
                await self._ask(app)
            except Exception as raised:
                require(raised is error, f"its layer makes {raised!r} of {error!r}, which was raised behind it")
            else:
                raise Failed(f"its layer swallows {error!r}, which was raised behind it")

    async def _ask(self, app: Any) -> list[Message]:
        coming: list[Message] = [_LEAVES, {"type": "http.request", "body": b"asked", "more_body": False}]
        sent: list[Message] = []

        async def receive() -> Message:
            return coming.pop() if coming else _LEAVES

        async def send(message: Message) -> None:
            sent.append(message)

        scope: Scope = {
            "type": "http",
            "method": "POST",
            "path": "/kit",
            "raw_path": b"/kit",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [(b"host", b"kit"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
            "server": ("kit", 80),
            SHORT_CUT: send,
        }
        await self._layer.around(app)(scope, receive, send)
        return sent
