"""Paths of core's own that no route of a plugin may have: looked at again when the application is made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from core.server.plugin_routes.claims import first_part, shared
from core.server.plugin_routes.route import PluginRoute, refusal


def check_free(routes: Sequence[PluginRoute], own: Iterable[Any], keyless: Collection[str] = ()) -> None:
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
