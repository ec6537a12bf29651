"""Facts about routes of plugins, for the report of the start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from core.server.plugin_routes.claims import shared, some
from core.server.plugin_routes.route import PluginRoute


def route_facts(owners: Iterable[str], routes: Sequence[PluginRoute]) -> dict[str, str]:
    """Return, by plugin that has routes, where they are and what of them needs no key."""
    found = {}
    for owner in owners:
        mine = [route for route in routes if route.owner == owner]
        if not mine:
            continue
        places = some(sorted({_place(route.path) for route in mine if route.header is None}))
        open_to_all = _folders([route.path for route in mine if route.public])
        name = owner.partition(" ")[0].strip("'")
        found[f"routes of {name}"] = " ".join(places)
        if open_to_all:
            found[f"routes of {name}"] += f"; without a key: {' '.join(open_to_all)}"
    return found


def _place(path: str) -> str:
    """Return where a path lies: its first part, with the second one where APIs share the first."""
    return "/".join(path.split("/")[: 3 if shared(path) else 2])


def _folders(paths: Sequence[str]) -> list[str]:
    """Return paths, those of one folder together."""
    counts = Counter(path.rpartition("/")[0] for path in paths)
    alone = [path for path in paths if counts[path.rpartition("/")[0]] == 1]
    return sorted([*alone, *(f"{folder}/* ({count})" for folder, count in counts.items() if count > 1)])
