"""API integers: one per kind, bumped for breaking changes only.

A plugin states the integer it was written for; core accepts the current one and the one before, unless that was
dropped. The integers stand in the kinds (`core.plugins.kinds`): what is here follows from them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, NamedTuple

# Made of the kinds when somebody asks for them, by `__getattr__`.
API_VERSIONS: dict[str, int]
"""API integer of every kind but hooks, by entry-point group."""

HOOKS_API: int
"""API integer of the hook specifications (`core.plugins`)."""

STABLE: frozenset[str]
"""Kinds that break only with a new integer; the others are provisional and may break with a note in one release."""

_HOOKS = "core.plugins"


class ApiVersion(NamedTuple):
    """A kind's integer and how firm it is.

    Attributes:
        api: The integer.
        tier: `stable` breaks with a new integer only, `provisional` may with a note in one release.
    """

    api: int
    tier: Literal["stable", "provisional"]


def versions() -> dict[str, ApiVersion]:
    """Return the API integer and tier of every kind of core's, hooks included, by entry-point group."""
    from core.plugins.kinds import KINDS

    return {group: ApiVersion(kind.api, kind.tier) for group, kind in KINDS.items()}


def oldest(group: str) -> int:
    """Return the oldest integer of `group` that is accepted: the one before the current, unless it was dropped."""
    from core.plugins.kinds import kind_of

    return kind_of(group).first_api


def accepts(group: str, api: int) -> bool:
    """Say whether a plugin of `group` written for integer `api` can be used by this core."""
    from core.plugins.kinds import kind_of

    return kind_of(group).accepts(api)


@cache
def _tables() -> dict[str, Any]:
    table = versions()
    return {
        "API_VERSIONS": {group: version.api for group, version in table.items() if group != _HOOKS},
        "HOOKS_API": table[_HOOKS].api,
        "STABLE": frozenset(group for group, version in table.items() if version.tier == "stable"),
    }


def __getattr__(name: str) -> Any:
    """Return a table that follows from the kinds, which nobody loads before (PEP 562)."""
    tables = _tables() if name in ("API_VERSIONS", "HOOKS_API", "STABLE") else {}
    if name not in tables:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return tables[name]
