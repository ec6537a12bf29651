"""A route of core's own, as data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from core.server.state import ServerState

Endpoint = Callable[[ServerState, Request], Awaitable[Response]]


class Route(NamedTuple):
    """One route. It reads its own body, bounded and strict, and raises errors for the gate to answer.

    Attributes:
        body: Told to clients in the schema.
    """

    method: str
    path: str
    endpoint: Endpoint
    body: type[BaseModel] | None = None
