"""Routes of plugins: declared before the engine starts, bound to it once it runs."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import orjson

from core.api.descriptors import RouteSpec
from core.api.errors import CoreError, PluginError, RequestError
from core.api.routes import Endpoint, RoutePlugin
from core.plugins.boot import ActivePlugins
from core.plugins.drivers import describe
from core.server.claims import Claims, below, first_part
from core.server.dialect import Dialect

if TYPE_CHECKING:
    from core.server.errors import ApiError
    from core.server.state import ServerState

logger = logging.getLogger(__name__)

GROUP = "core.routes"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
_PARAMETER = re.compile(r"\{[^{}/]+\}")

Write = Callable[[RequestError], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class PluggedRoute:
    """One declared route and whose it is.

    Attributes:
        public: An asset: everybody may GET it.
        optional: It makes room for another plugin's.
    """

    owner: str
    method: str
    path: str
    endpoint: Endpoint
    summary: str = ""
    public: bool = False
    optional: bool = False

    @property
    def methods(self) -> tuple[str, ...]:
        """All methods that it answers."""
        return ("GET", "HEAD") if self.public else (self.method,)

    def meets(self, other: PluggedRoute) -> bool:
        """Whether both answer the same requests."""
        same = _PARAMETER.sub("{}", self.path) == _PARAMETER.sub("{}", other.path)
        return same and bool(set(self.methods) & set(other.methods))


@dataclass(slots=True)
class RouteTable:
    """The routes of all plugins, the paths that they claim, and how they say errors."""

    routes: list[PluggedRoute] = field(default_factory=list)
    plugins: list[tuple[str, RoutePlugin]] = field(default_factory=list)
    claims: Claims = field(default_factory=Claims)
    errors: dict[str, tuple[str, Write]] = field(default_factory=dict)

    @classmethod
    def declare(cls, active: ActivePlugins) -> RouteTable:
        """Let the plan's route plugins declare their routes.

        Raises:
            PluginError: CORE-P130, a route cannot be; CORE-P108, a plugin raised something else.
        """
        table = cls()
        for planned, spec in active.specs(GROUP):
            owner = planned.owner
            plugin: RoutePlugin = active.make(planned, planned.options)
            registry = table.registry(planned.name, owner, cast(RouteSpec, spec))
            active.guard(planned, "declare()", plugin.declare, registry)
            table.plugins.append((owner, plugin))
        return table

    def registry(self, name: str, owner: str, spec: RouteSpec) -> PluginRoutes:
        """Return what a plugin declares its routes to. Raises `PluginError` CORE-P130: it claims too much."""
        self.claims.take(owner, spec.mounts)
        return PluginRoutes(self, name, owner, spec.mounts, spec.public)

    def bind(self, state: ServerState) -> None:
        """Give every plugin the running engine. Raises `PluginError` CORE-P108."""
        from core.server.plugged_client import ServedClient

        for mount, (owner, write) in self.errors.items():
            state.mounted_dialects[mount] = Dialect(body=_said(owner, write))
        for owner, plugin in self.plugins:
            try:
                plugin.bind(ServedClient(state))
            except CoreError:
                raise
            except Exception as error:
                raise PluginError("CORE-P108", f"route plugin {owner}: bind() raised {describe(error)}.") from error

    def facts(self) -> dict[str, str]:
        """Return, by plugin, where its routes are and what of them needs no key."""
        found = {}
        for owner, _ in self.plugins:
            mine = [route for route in self.routes if route.owner == owner]
            places = sorted({f"/{first_part(route.path)}" for route in mine})
            open_to_all = _folders([route.path for route in mine if route.public])
            name = owner.partition(" ")[0].strip("'")
            found[f"routes of {name}"] = " ".join(places)
            if open_to_all:
                found[f"routes of {name}"] += f"; without a key: {' '.join(open_to_all)}"
        return found

    def put(self, route: PluggedRoute) -> None:
        """Add a route, or leave it or another out where one of two makes room. Raises `PluginError` CORE-P130."""
        for known in [one for one in self.routes if one.meets(route)]:
            if known.owner != route.owner and route.optional:
                return
            if known.owner == route.owner or not known.optional:
                raise refusal(route.owner, route.method, route.path, f"route plugin {known.owner} has declared it")
            self.routes.remove(known)
        self.routes.append(route)


@dataclass(frozen=True, slots=True)
class PluginRoutes:
    """The `RouteRegistry` of one plugin."""

    table: RouteTable
    name: str
    owner: str
    mounts: tuple[str, ...] = ()
    public: tuple[str, ...] = ()

    def add(self, method: str, path: str, endpoint: Endpoint, *, summary: str = "") -> None:
        """Declare a route. Raises `PluginError` CORE-P130."""
        if method not in METHODS:
            raise refusal(self.owner, method, path, f"methods are {', '.join(METHODS)}")
        self._check(method, path)
        self.table.put(PluggedRoute(self.owner, method, path, endpoint, summary))

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
        from core.server.plugged_answer import Asset

        self._check("GET", path)
        if not any(below(path, one) for one in self.public):
            raise refusal(self.owner, "GET", path, "its descriptor does not name the path among `public`")
        if _PARAMETER.search(path) or not isinstance(content, bytes):
            raise refusal(self.owner, "GET", path, "an asset has a plain path and is bytes")
        asset = Asset(content, media_type, {name.lower(): value for name, value in (headers or {}).items()})
        summary = f"{media_type} of {self.name}, for everybody"
        self.table.put(PluggedRoute(self.owner, "GET", path, asset, summary, public=True, optional=optional))

    def errors(self, write: Write) -> None:
        """Say how errors look under the plugin's paths; of `/` alone they look as everywhere."""
        for mount in self._places():
            self.table.errors[mount] = (self.owner, write)

    def _check(self, method: str, path: str) -> None:
        if not any(below(path, place) for place in self._places()):
            places = " or ".join(place if place == "/" else f"{place}/" for place in self._places())
            raise refusal(self.owner, method, path, f"its routes lie under {places}")

    def _places(self) -> tuple[str, ...]:
        return (f"/x/{self.name}", *self.mounts)


def _folders(paths: Sequence[str]) -> list[str]:
    """Return paths, those of one folder together."""
    counts = Counter(path.rpartition("/")[0] for path in paths)
    alone = [path for path in paths if counts[path.rpartition("/")[0]] == 1]
    return sorted([*alone, *(f"{folder}/* ({count})" for folder, count in counts.items() if count > 1)])


def check_free(routes: Sequence[PluggedRoute], own: Iterable[Any]) -> None:
    """Refuse routes of plugins under the server's own paths. Raises `PluginError` CORE-P130."""
    taken = {first_part(route.path) for route in own if hasattr(route, "path")}
    for route in routes:
        if first_part(route.path) in taken:
            raise refusal(route.owner, route.method, route.path, f"/{first_part(route.path)} is core's own")


def refusal(owner: str, method: str, path: str, why: str) -> PluginError:
    """Return the error of a route that cannot be."""
    return PluginError("CORE-P130", f"route plugin {owner} cannot have route {method} {path}: {why}.")


def _said(owner: str, write: Write) -> Callable[[ApiError], dict[str, Any]]:
    from core.server.errors import scrub

    def body(error: ApiError) -> dict[str, Any]:
        told = RequestError(scrub(error.message), param=error.param, code=error.code, status=error.status)
        try:
            found = dict(write(told))
            orjson.dumps(found)  # what cannot be sent is no error that was said
            return found
        except Exception as wrong:
            logger.error("route plugin %s cannot say an error: %s: %s", owner, type(wrong).__name__, wrong)
            return error.body()

    return body
