"""Routes of plugins: declared before the engine starts, bound to it once it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from core.api.descriptors import RouteSpec
from core.api.errors import CoreError, PluginError
from core.api.kinds import AskChosen, Chosen, Kind, nobody
from core.api.routes import EngineClient, RoutePlugin
from core.api.serving import Dialect
from core.config.asked import settings_of
from core.config.resolved import Options
from core.plugins.active import ActivePlugins
from core.plugins.drivers import describe
from core.plugins.kinds import KINDS
from core.server.dialect import careful
from core.server.plugin_routes.claims import Claims
from core.server.plugin_routes.facts import route_facts
from core.server.plugin_routes.figures import PluginFigures
from core.server.plugin_routes.layer import PluginLayer
from core.server.plugin_routes.registry import PluginRoutes
from core.server.plugin_routes.route import PluginRoute, refusal

if TYPE_CHECKING:
    from core.server.state import ServerState

GROUP = "core.routes"
NO_FIGURES = "none"
"""`--metrics-compat` where core's figures are shown once."""
SECTIONS = ("server",)
"""Sections of core's options that routes may go by."""
DRIVEN = tuple(group for group, kind in KINDS.items() if kind.driver == GROUP)
"""Kinds of core's whose plugins are routes' to call."""
_HEADER = re.compile(r"(?!set-cookie)[a-z0-9-]{1,64}", re.IGNORECASE)
_KEY_HEADER = re.compile(r"(?!sec-)[a-z0-9-]{0,60}key", re.IGNORECASE)
"""No browser sends such a header of its own accord, so that a page cannot have a user's key sent along."""

FirstRequest = Callable[[EngineClient], tuple[str, Mapping[str, Any]] | None]


@dataclass(slots=True)
class RouteTable:
    """The routes of all plugins, the paths that they claim, and how they say errors.

    Attributes:
        dialects: Whose they are, and they, by the path that they hold for, with everything below it.
        client_dialects: The same by the header of the clients that they are for.
        specs: The descriptor of each plugin, by its owner.
        key_headers: In which clients send keys.
        exposed_headers: Headers of answers that web pages of other origins may read.
        first_requests: Whose they are, and what finds them.
        options: Of which plugins get those that they go by.
        chosen: Returns the plan's plugins of a kind that a plugin defines.
        driven: Returns those of a kind of core's that routes may drive.
    """

    routes: list[PluginRoute] = field(default_factory=list)
    plugins: list[tuple[str, RoutePlugin]] = field(default_factory=list)
    layers: list[PluginLayer] = field(default_factory=list)
    figures: list[PluginFigures] = field(default_factory=list)
    claims: Claims = field(default_factory=Claims)
    dialects: dict[str, tuple[str, Dialect]] = field(default_factory=dict)
    client_dialects: dict[bytes, tuple[str, Dialect]] = field(default_factory=dict)
    specs: dict[str, RouteSpec] = field(default_factory=dict)
    key_headers: set[bytes] = field(default_factory=set)
    exposed_headers: set[str] = field(default_factory=set)
    first_requests: list[tuple[str, FirstRequest]] = field(default_factory=list)
    options: Options = field(default_factory=Options)
    chosen: AskChosen = nobody
    driven: AskChosen = nobody

    @classmethod
    def declare(cls, active: ActivePlugins, options: Options | None = None) -> RouteTable:
        """Let the plan's route plugins declare their routes.

        Raises:
            PluginError: CORE-P130, a route cannot be, or the plugin of `--metrics-compat` has no figures; CORE-P108, a
                plugin raised something else.
        """
        table = cls(options=options or Options(), chosen=active.chosen, driven=active.driven)
        for planned, spec in active.specs(GROUP):
            owner = planned.owner
            plugin: RoutePlugin = active.make(planned, planned.options)
            registry = table.registry(planned.name, owner, cast(RouteSpec, spec))
            active.guard(planned, "declare()", plugin.declare, registry)
            table.plugins.append((owner, plugin))
        table.require_figures(
            table.options.server.metrics_compat, {planned.owner: planned.name for planned, _ in active.specs(GROUP)}
        )
        return table

    def require_figures(self, compat: str, names: Mapping[str, str]) -> None:
        """Refuse `--metrics-compat` of a plugin that has no figures. Raises `PluginError` CORE-P130.

        Args:
            names: Of the plugins, by whose they are.
        """
        wanted = compat.partition("@")[0]
        if compat != NO_FIGURES and all(names[one.owner] != wanted for one in self.figures):
            raise PluginError("CORE-P130", f"route plugin '{wanted}' has no figures for --metrics-compat {compat}.")

    def registry(self, name: str, owner: str, spec: RouteSpec) -> PluginRoutes:
        """Return what a plugin declares its routes to. Raises `PluginError` CORE-P130: it claims too much."""
        self.claims.take(owner, spec.mounts)
        _check_spec(owner, spec)
        self.specs[owner] = spec
        self.key_headers |= {header.lower().encode() for header in spec.key_headers}
        self.exposed_headers |= {header.lower() for header in spec.exposed_headers}
        try:
            settings = settings_of(self.options, spec.settings, SECTIONS)
        except LookupError as error:
            text = f"route plugin {owner} cannot have the setting '{error.args[0]}' of the server."
            raise PluginError("CORE-P130", text) from None
        return PluginRoutes(self, name, owner, spec.mounts, spec.public, settings)

    def bind(self, state: ServerState) -> None:
        """Give every plugin the running engine. Raises `PluginError` CORE-P108."""
        state.key_headers |= self.key_headers
        state.exposed_headers |= self.exposed_headers
        state.mounted_dialects |= {path: careful(*whose) for path, whose in self.dialects.items()}
        state.client_dialects |= {header: careful(*whose) for header, whose in self.client_dialects.items()}
        for owner, plugin in self.plugins:
            try:
                plugin.bind(self.client(owner, state))
                for layer in self.layers:
                    if layer.owner == owner:
                        layer.bind()
            except CoreError:
                raise
            except Exception as error:
                raise PluginError("CORE-P108", f"route plugin {owner}: bind() raised {describe(error)}.") from error

    def client(self, owner: str, state: ServerState) -> EngineClient:
        """Return the running engine as a plugin sees it."""
        from core.server.plugin_routes.client import ServedClient

        spec = self.specs.get(owner)
        settings = settings_of(state.options, spec.settings if spec else (), SECTIONS)
        return ServedClient(state, settings, partial(self.ask, owner))

    def ask(self, owner: str, kind: Kind | str) -> Sequence[Chosen]:
        """Return the chosen plugins of a kind, for one that drives them or may ask for them. Raises `PluginError`."""
        spec = self.specs.get(owner)
        group = kind if isinstance(kind, str) else kind.group
        return self.driven(kind) if spec and group in spec.drives else self.chosen(kind)

    def first_request(self, state: ServerState) -> tuple[str, Mapping[str, Any]] | None:
        """Return path and fields of a request to be copied, by the first plugin that has one. Raises `PluginError`."""
        for owner, find in self.first_requests:
            try:
                found = find(self.client(owner, state))
            except Exception as error:
                raise PluginError(
                    "CORE-P108", f"route plugin {owner}: first_request raised {describe(error)}."
                ) from error
            if found is not None:
                return found
        return None

    def facts(self) -> dict[str, str]:
        """Return, by plugin, where its routes are and what of them needs no key."""
        return route_facts([owner for owner, _ in self.plugins], self.routes)

    def put(self, route: PluginRoute) -> None:
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


def _check_spec(owner: str, spec: RouteSpec) -> None:
    """Refuse what a descriptor may not ask for. Raises `PluginError` CORE-P130, or CORE-P132 of a kind."""
    for group in spec.drives:
        if group not in DRIVEN:
            text = f"route plugin {owner} cannot drive {group!r}: {', '.join(DRIVEN)} can be driven."
            raise PluginError("CORE-P132", text)
    for header in spec.key_headers:
        if not _KEY_HEADER.fullmatch(header):
            raise PluginError("CORE-P130", f"route plugin {owner} cannot have keys in the header {header!r}.")
    for header in spec.exposed_headers:
        if not _HEADER.fullmatch(header):
            raise PluginError("CORE-P130", f"route plugin {owner} cannot have the header {header!r} exposed.")
