"""Routes of plugins: declared before the engine starts, bound to it once it runs."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast, get_args

import orjson

from core.api.descriptors import RouteSpec
from core.api.errors import CoreError, PluginError, RequestError
from core.api.kinds import AskChosen, nobody
from core.api.middleware import Layer
from core.api.routes import Endpoint, EngineClient, RoutePlugin, RouteScope
from core.api.serving import Dialect
from core.config.fields import SECRETS
from core.config.resolved import ServerOptions
from core.plugins.boot import ActivePlugins
from core.plugins.drivers import describe
from core.server.claims import Claims, below, first_part, shared
from core.server.plugged_layer import PluggedLayer

if TYPE_CHECKING:
    from pydantic import BaseModel

    from core.server.state import ServerState

logger = logging.getLogger(__name__)

GROUP = "core.routes"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
_PARAMETER = re.compile(r"\{[^{}/]+\}")

FirstRequest = Callable[[EngineClient], tuple[str, Mapping[str, Any]] | None]


@dataclass(frozen=True, slots=True)
class PluggedRoute:
    """One declared route and whose it is.

    Attributes:
        scope: Who may ask it.
        file: An asset, which answers HEAD as well.
        optional: It makes room for another plugin's.
        body: What clients are told of its body.
        header: Clients that send this header get it; the path may be another's for everybody else.
        generates: A model that gives vectors does not answer it.
        streams: Told to clients: it may answer with events.
    """

    owner: str
    method: str
    path: str
    endpoint: Endpoint
    summary: str = ""
    scope: RouteScope = "generate"
    file: bool = False
    optional: bool = False
    body: type[BaseModel] | None = None
    header: str | None = None
    generates: bool = False
    streams: bool = False

    @property
    def public(self) -> bool:
        """Whether nobody needs a key for it."""
        return self.scope == "public"

    @property
    def methods(self) -> tuple[str, ...]:
        """All methods that it answers."""
        return ("GET", "HEAD") if self.file else (self.method,)

    def meets(self, other: PluggedRoute) -> bool:
        """Whether both answer the same requests."""
        return self.header == other.header and self.answers(other.path, other.methods)

    def answers(self, path: str, methods: Iterable[str]) -> bool:
        """Whether it answers some of the requests for a path."""
        return _PARAMETER.sub("{}", self.path) == _PARAMETER.sub("{}", path) and bool(set(self.methods) & set(methods))


@dataclass(slots=True)
class RouteTable:
    """The routes of all plugins, the paths that they claim, and how they say errors.

    Attributes:
        dialects: Whose they are, and they, by the path that they hold for, with everything below it.
        client_dialects: The same by the header of the clients that they are for.
        settings: Names of the server's options that a plugin goes by.
        first_requests: Whose they are, and what finds them.
        chosen: Returns the plan's plugins of a kind that a plugin defines.
    """

    routes: list[PluggedRoute] = field(default_factory=list)
    plugins: list[tuple[str, RoutePlugin]] = field(default_factory=list)
    layers: list[PluggedLayer] = field(default_factory=list)
    claims: Claims = field(default_factory=Claims)
    dialects: dict[str, tuple[str, Dialect]] = field(default_factory=dict)
    client_dialects: dict[bytes, tuple[str, Dialect]] = field(default_factory=dict)
    settings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    first_requests: list[tuple[str, FirstRequest]] = field(default_factory=list)
    chosen: AskChosen = nobody

    @classmethod
    def declare(cls, active: ActivePlugins) -> RouteTable:
        """Let the plan's route plugins declare their routes.

        Raises:
            PluginError: CORE-P130, a route cannot be; CORE-P108, a plugin raised something else.
        """
        table = cls(chosen=active.chosen)
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
        for name in spec.settings:
            if name not in ServerOptions.model_fields or f"server.{name}" in SECRETS:
                raise PluginError("CORE-P130", f"route plugin {owner} cannot have the setting {name!r} of the server.")
        self.settings[owner] = spec.settings
        return PluginRoutes(self, name, owner, spec.mounts, spec.public)

    def bind(self, state: ServerState) -> None:
        """Give every plugin the running engine. Raises `PluginError` CORE-P108."""
        from core.server.plugged_client import ServedClient

        state.mounted_dialects |= {path: careful(*whose) for path, whose in self.dialects.items()}
        state.client_dialects |= {header: careful(*whose) for header, whose in self.client_dialects.items()}
        for owner, plugin in self.plugins:
            try:
                plugin.bind(ServedClient(state, self.settings.get(owner, ()), self.chosen))
                for layer in self.layers:
                    if layer.owner == owner:
                        layer.bind()
            except CoreError:
                raise
            except Exception as error:
                raise PluginError("CORE-P108", f"route plugin {owner}: bind() raised {describe(error)}.") from error

    def first_request(self, state: ServerState) -> tuple[str, Mapping[str, Any]] | None:
        """Return path and fields of a request to be copied, by the first plugin that has one. Raises `PluginError`."""
        from core.server.plugged_client import ServedClient

        for owner, find in self.first_requests:
            try:
                found = find(ServedClient(state, self.settings.get(owner, ()), self.chosen))
            except Exception as error:
                raise PluginError(
                    "CORE-P108", f"route plugin {owner}: first_request raised {describe(error)}."
                ) from error
            if found is not None:
                return found
        return None

    def facts(self) -> dict[str, str]:
        """Return, by plugin, where its routes are and what of them needs no key."""
        found = {}
        for owner, _ in self.plugins:
            mine = [route for route in self.routes if route.owner == owner]
            places = sorted({_place(route.path) for route in mine if route.header is None})
            open_to_all = _folders([route.path for route in mine if route.public])
            name = owner.partition(" ")[0].strip("'")
            found[f"routes of {name}"] = " ".join(places)
            if open_to_all:
                found[f"routes of {name}"] += f"; without a key: {' '.join(open_to_all)}"
        return found

    def put(self, route: PluggedRoute) -> None:
        """Add a route, or leave it or another out where one of two makes room. Raises `PluginError` CORE-P130."""
        if any(one.path == route.path and (one.scope == "admin") != (route.scope == "admin") for one in self.routes):
            raise refusal(route.owner, route.method, route.path, "all routes of a path have the admin scope, or none")
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
    ) -> None:
        """Declare a route. Raises `PluginError` CORE-P130."""
        if method not in METHODS:
            raise refusal(self.owner, method, path, f"methods are {', '.join(METHODS)}")
        if header is None:
            self._check(method, path)
        if scope != "generate":
            self._check_scope(method, path, scope, header)
        route = PluggedRoute(
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
        )
        self.table.put(route)

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
        self._check_public("GET", path)
        if _PARAMETER.search(path) or not isinstance(content, bytes):
            raise refusal(self.owner, "GET", path, "an asset has a plain path and is bytes")
        asset = Asset(content, media_type, {name.lower(): value for name, value in (headers or {}).items()})
        summary = f"{media_type} of {self.name}, for everybody"
        self.table.put(PluggedRoute(self.owner, "GET", path, asset, summary, "public", file=True, optional=optional))

    def layer(self, layer: Layer) -> None:
        """Put middleware around the routes."""
        self.table.layers.append(PluggedLayer(self.owner, layer))

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
        if _PARAMETER.search(path):
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


def _place(path: str) -> str:
    """Return where a path lies: its first part, with the second one where APIs share the first."""
    return "/".join(path.split("/")[: 3 if shared(path) else 2])


def _folders(paths: Sequence[str]) -> list[str]:
    """Return paths, those of one folder together."""
    counts = Counter(path.rpartition("/")[0] for path in paths)
    alone = [path for path in paths if counts[path.rpartition("/")[0]] == 1]
    return sorted([*alone, *(f"{folder}/* ({count})" for folder, count in counts.items() if count > 1)])


def check_free(routes: Sequence[PluggedRoute], own: Iterable[Any], keyless: Collection[str] = ()) -> None:
    """Refuse routes of plugins under the server's own paths. Raises `PluginError` CORE-P130.

    Args:
        keyless: Paths that need no key, on which no code of a plugin runs, whichever header a client sends.
    """
    known = [one for one in own if hasattr(one, "path")]
    taken = {first_part(one.path) for one in known}
    for route in routes:
        if route.header is not None:
            if route.path in keyless:
                raise refusal(route.owner, route.method, route.path, "nobody needs a key for this path")
            continue
        if route.scope != "generate" and any(_answers(one, route.path) for one in known):
            raise refusal(route.owner, route.method, route.path, "core answers this path")
        if shared(route.path):
            if any(route.answers(one.path, getattr(one, "methods", None) or ()) for one in known):
                raise refusal(route.owner, route.method, route.path, "core has this route")
        elif first_part(route.path) in taken:
            raise refusal(route.owner, route.method, route.path, f"/{first_part(route.path)} is core's own")


def _answers(one: Any, path: str) -> bool:
    """Whether a route of core's answers a path, by whichever method: a scope is that of the whole path."""
    pattern = getattr(one, "path_regex", None)
    return one.path == path if pattern is None else pattern.match(path) is not None


def refusal(owner: str, method: str, path: str, why: str) -> PluginError:
    """Return the error of a route that cannot be."""
    return PluginError("CORE-P130", f"route plugin {owner} cannot have route {method} {path}: {why}.")


def careful(owner: str, dialect: Dialect) -> Dialect:
    """Return a plugin's dialect that says what cannot be said in it as everybody else does."""
    from core.server.dialect import OPENAI

    def body(error: RequestError) -> Mapping[str, Any]:
        try:
            found = dict(dialect.body(error))
            orjson.dumps(found)  # what cannot be sent is no error that was said
            return found
        except Exception as wrong:
            logger.error("route plugin %s cannot say an error: %s: %s", owner, type(wrong).__name__, wrong)
            return OPENAI.body(error)

    return replace(dialect, body=body)
