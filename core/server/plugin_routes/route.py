"""One route of a plugin, as it was declared."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.api.errors import PluginError
from core.api.routes import Endpoint, RouteScope
from core.api.sockets import SocketEndpoint

if TYPE_CHECKING:
    from pydantic import BaseModel

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
SOCKET = "SOCKET"
"""In place of the method of a web socket."""

PARAMETER = re.compile(r"\{[^{}/]+\}")
"""A part of a path that is one."""


@dataclass(frozen=True, slots=True)
class PluginRoute:
    """One declared route and whose it is.

    Attributes:
        scope: Who may ask it.
        file: An asset, which answers HEAD as well.
        optional: It makes room for another plugin's.
        body: What clients are told of its body.
        header: Clients that send this header get it; the path may be another's for everybody else.
        generates: A model that gives vectors does not answer it.
        streams: Told to clients: it may answer with events.
        takes: Told to clients: the media type of its body.
    """

    owner: str
    method: str
    path: str
    endpoint: Endpoint | SocketEndpoint
    summary: str = ""
    scope: RouteScope = "generate"
    file: bool = False
    optional: bool = False
    body: type[BaseModel] | None = None
    header: str | None = None
    generates: bool = False
    streams: bool = False
    takes: str = "application/json"

    @property
    def socket(self) -> bool:
        """Whether it is a web socket."""
        return self.method == SOCKET

    @property
    def public(self) -> bool:
        """Whether nobody needs a key for it."""
        return self.scope == "public"

    @property
    def methods(self) -> tuple[str, ...]:
        """All methods that it answers."""
        return ("GET", "HEAD") if self.file else (self.method,)

    def meets(self, other: PluginRoute) -> bool:
        """Whether both answer the same requests."""
        return self.header == other.header and self.answers(other.path, other.methods)

    def answers(self, path: str, methods: Iterable[str]) -> bool:
        """Whether it answers some of the requests for a path."""
        return PARAMETER.sub("{}", self.path) == PARAMETER.sub("{}", path) and bool(set(self.methods) & set(methods))


def refusal(owner: str, method: str, path: str, why: str) -> PluginError:
    """Return the error of a route that cannot be."""
    return PluginError("CORE-P130", f"route plugin {owner} cannot have route {method} {path}: {why}.")
