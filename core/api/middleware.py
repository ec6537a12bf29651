"""Layers: ASGI middleware of a route plugin around all routes, inside the server's gate. Provisional.

A layer sees requests that have passed the key check and the limits, and answers before they get their request id, are
counted and logged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
"""Takes a request's scope, what it receives by, and what it sends by. A client that leaves is no error of it."""

Layer = Callable[[AsgiApp], AsgiApp]
"""Returns what stands around an application; the application itself where nothing should."""

SHORT_CUT = "core.send"
"""Key of the scope: where the pieces of a stream go behind the head of the answer, past the layers outside.

A layer that wants to see them, too, puts its own `send` there before it passes the scope on.
"""
