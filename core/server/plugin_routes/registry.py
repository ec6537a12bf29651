"""Where a plugin declares its routes: what it may not have is refused before the engine starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from core.api.figures import FigureCollector
from core.api.kinds import Chosen, Kind
from core.api.middleware import Layer
from core.api.record import EMPTY
from core.api.routes import Endpoint, RouteScope
from core.api.serving import Dialect
from core.api.sockets import SocketEndpoint
from core.server.plugin_routes.claims import below
from core.server.plugin_routes.figures import PluginFigures
from core.server.plugin_routes.layer import PluginLayer
from core.server.plugin_routes.route import METHODS, PARAMETER, SOCKET, PluginRoute, refusal

if TYPE_CHECKING:
    from pydantic import BaseModel

    from core.server.plugin_routes.table import FirstRequest, RouteTable


@dataclass(frozen=True, slots=True)
class PluginRoutes:
    """The `RouteRegistry` of one plugin."""

    table: RouteTable
    name: str
    owner: str
    mounts: tuple[str, ...] = ()
    public: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=lambda: EMPTY)

    def chosen(self, kind: Kind | str) -> Sequence[Chosen]:
        """Return the chosen plugins of a kind that a plugin defines, or that this one drives. Raises `PluginError`."""
        return self.table.ask(self.owner, kind)

    def add(
        self,
        method: str,
        path: str,
        endpoint: Endpoint,
        *,
        summary: str = "",
        body: type[BaseModel] | None = None,
        header: str | None = None,
        generates: bool = False,
        streams: bool = False,
        scope: RouteScope = "generate",
        takes: str = "application/json",
    ) -> None:
        """Declare a route. Raises `PluginError` CORE-P130."""
        if method not in METHODS:
            raise refusal(self.owner, method, path, f"methods are {', '.join(METHODS)}")
        if header is None:
            self._check(method, path)
        if scope != "generate":
            self._check_scope(method, path, scope, header)
        route = PluginRoute(
            self.owner,
            method,
            path,
            endpoint,
            summary,
            scope,
            body=body,
            header=header and header.lower(),
            generates=generates,
            streams=streams,
            takes=takes,
        )
        self.table.put(route)

    def socket(self, path: str, endpoint: SocketEndpoint, *, summary: str = "", scope: RouteScope = "generate") -> None:
        """Declare a web socket. Raises `PluginError` CORE-P130."""
        self._check(SOCKET, path)
        if scope != "generate":
            self._check_scope(SOCKET, path, scope, None)
        self.table.put(PluginRoute(self.owner, SOCKET, path, endpoint, summary, scope))

    def asset(
        self,
        path: str,
        content: bytes,
        media_type: str,
        *,
        headers: Mapping[str, str] | None = None,
        optional: bool = False,
    ) -> None:
        """Declare a file for everybody. Raises `PluginError` CORE-P130."""
        from core.server.plugin_routes.response import Asset

        self._check("GET", path)
        self._check_public("GET", path)
        if PARAMETER.search(path) or not isinstance(content, bytes):
            raise refusal(self.owner, "GET", path, "an asset has a plain path and is bytes")
        asset = Asset(content, media_type, {name.lower(): value for name, value in (headers or {}).items()})
        summary = f"{media_type} of {self.name}, for everybody"
        self.table.put(PluginRoute(self.owner, "GET", path, asset, summary, "public", file=True, optional=optional))

    def figures(self, names: Iterable[str], collect: FigureCollector) -> None:
        """Show figures on the page of metrics. Raises `PluginError` CORE-P130."""
        made = PluginFigures(self.owner, names, collect)
        made.check(self.table.figures)
        self.table.figures.append(made)

    def layer(self, layer: Layer) -> None:
        """Put middleware around the routes."""
        self.table.layers.append(PluginLayer(self.owner, layer))

    def dialect(self, dialect: Dialect, *, place: str | None = None, header: str | None = None) -> None:
        """Say how errors look under the plugin's paths; of `/` alone they look as everywhere.

        Raises:
            PluginError: CORE-P130, `place` is none of these paths.
        """
        if place is not None:
            self._check("any", place)
        places = self._places() if place is None else (place,)
        self.table.dialects |= dict.fromkeys(places, (self.owner, dialect))
        if header is not None:
            self.table.client_dialects[header.lower().encode()] = (self.owner, dialect)

    def first_request(self, find: FirstRequest) -> None:
        """Show whoever starts the server a request to copy."""
        self.table.first_requests.append((self.owner, find))

    def _check(self, method: str, path: str) -> None:
        if not any(below(path, place) for place in self._places()):
            places = " or ".join(place if place == "/" else f"{place}/" for place in self._places())
            raise refusal(self.owner, method, path, f"its routes lie under {places}")

    def _check_scope(self, method: str, path: str, scope: RouteScope, header: str | None) -> None:
        """Refuse what the gate, which sees a path and no route, could not decide."""
        if scope not in get_args(RouteScope):
            raise refusal(self.owner, method, path, f"scopes are {', '.join(get_args(RouteScope))}")
        if PARAMETER.search(path):
            why = f"the scope {scope} is decided by the exact path, so that it has no parameters"
            raise refusal(self.owner, method, path, why)
        if header is not None:
            raise refusal(self.owner, method, path, f"routes for clients with a header have no scope {scope}")
        if scope == "public":
            self._check_public(method, path)

    def _check_public(self, method: str, path: str) -> None:
        if not any(below(path, one) for one in self.public):
            raise refusal(self.owner, method, path, "its descriptor does not name the path among `public`")
        if method not in ("GET", "HEAD"):
            raise refusal(self.owner, method, path, "without a key only GET and HEAD are answered")

    def _places(self) -> tuple[str, ...]:
        return (f"/x/{self.name}", *self.mounts)
