"""Paths that route plugins claim outside `/x/`: none of core's own, and none twice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.api.errors import PluginError

_FIRST_PARTS = "v1 v2 x core openapi.json health livez ready readyz ping load version metrics"

OWN = frozenset(_FIRST_PARTS.split())
"""First parts of core's own paths, so that a claim is refused before the engine starts; the application looks again."""

SHARED = frozenset({"v1", "v2"})
"""First parts of paths below which several APIs have theirs."""

MOST_SHOWN = 9
"""How many paths of a plugin are listed in full."""

_FIRST_SHOWN = 5
_PATH = re.compile(r"/|(?:/(?!\.+(?:/|$))[A-Za-z0-9._~-]+)+")


def first_part(path: str) -> str:
    """Return a path up to its second slash, without the first; empty for `/`."""
    return path.split("/")[1]


def below(path: str, place: str) -> bool:
    """Whether a path is `place` or lies below it; below `/` lies nothing."""
    return path == place or (place != "/" and path.startswith(f"{place}/"))


def shared(path: str) -> bool:
    """Whether a path lies where several APIs have theirs."""
    return first_part(path) in SHARED and path.count("/") > 1


def some(paths: Sequence[str]) -> list[str]:
    """Return the paths of a list; of many only the first few, and how many more there are."""
    if len(paths) <= MOST_SHOWN:
        return list(paths)
    return [*paths[:_FIRST_SHOWN], f"and {len(paths) - _FIRST_SHOWN} more"]


@dataclass(slots=True)
class Claims:
    """Claims of plugins on paths; `/` is a page that the routes themselves settle."""

    owners: dict[str, str] = field(default_factory=dict)

    def take(self, owner: str, mounts: tuple[str, ...]) -> None:
        """Claim paths and everything below them. Raises `PluginError` CORE-P130."""
        for mount in mounts:
            if not _PATH.fullmatch(mount):
                raise _refusal(owner, mount, "a mount is a plain path such as '/api', or '/'")
            if first_part(mount) in OWN and not shared(mount):
                raise _refusal(owner, mount, f"/{first_part(mount)} is core's own")
            for other, whose in self.owners.items():
                if mount != "/" and whose != owner and (below(mount, other) or below(other, mount)):
                    why = f"route plugin {whose} claims {other}; choose one of them with --route"
                    raise _refusal(owner, mount, why)
        self.owners |= dict.fromkeys(mounts, owner)


def _refusal(owner: str, mount: str, why: str) -> PluginError:
    return PluginError("CORE-P130", f"route plugin {owner} cannot have {mount}: {why}.")
