"""Stands in front of the routes that have the model answer, and has their texts looked at first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from acme_core_moderation.panel import Panel
from core.api.middleware import AsgiApp, Message, Receive, Scope, Send

WATCHED = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/api/chat", "/api/generate")
"""Paths whose bodies hold texts for the model."""

FIELDS = ("system", "instructions", "messages", "prompt", "input", "content", "text")
"""Fields of such bodies, and of what is in them, that hold texts."""


class ModerationLayer:
    """ASGI middleware: reads the body of such a request, has it looked at, and passes it on."""

    def __init__(self, app: AsgiApp, panel: Panel) -> None:
        self._app, self._panel = app, panel

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, unless a moderator objects: `RequestError`, which becomes the answer."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in WATCHED:
            await self._app(scope, receive, send)
            return
        kept = [await receive()]
        while kept[-1]["type"] == "http.request" and kept[-1].get("more_body"):
            kept.append(await receive())
        text = "\n".join(_texts(_parsed(b"".join(message.get("body", b"") for message in kept))))
        if text:
            await self._panel.admit(text)
        await self._app(scope, _replay(kept, receive), send)


def _replay(kept: list[Message], receive: Receive) -> Receive:
    """Return what gives the messages that were read once more, then those that follow."""

    async def again() -> Message:
        return kept.pop(0) if kept else await receive()

    return again


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None  # the route says what is wrong with it


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a body."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += [one[name] for name in reversed(FIELDS) if name in one]
        elif isinstance(one, list):
            waiting += reversed(one)
