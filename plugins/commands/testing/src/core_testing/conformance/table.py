"""Which checks a kind of plugin has to pass."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from core.plugins.kinds import HOOKS_GROUP, KIND, KINDS, KINDS_GROUP, kind_of
from core_testing.conformance.outcome import Check

EVERY = ("packaging", "manifest", "spawn")
"""Areas of every kind."""

AREAS: Mapping[str, tuple[str, ...]] = MappingProxyType({kind.group: kind.checks for kind in (*KINDS.values(), KIND)})
"""Further areas of each of core's groups; each is a module of `core_testing.conformance.areas` with its `CHECKS`."""


def checks_of(area: str) -> tuple[Check, ...]:
    """Return the checks of an area, in order. Imports the area, and with it what its checks need (often torch).

    Args:
        area: An area of core's kit, or the module in which a kind of a plugin's has its own.
    """
    module = area if "." in area else f"core_testing.conformance.areas.{area}"
    checks: tuple[Check, ...] = import_module(module).CHECKS
    return checks


def checks_for(group: str) -> list[Check]:
    """Return every check for plugins of `group`; a group without checks of its own has those of every kind."""
    areas = (*EVERY, *kind_of(group).checks)
    return [check for area in areas for check in checks_of(area) if _fits(check, group)]


def _fits(check: Check, group: str) -> bool:
    # Hook modules and kinds have no descriptor, options or implementation.
    return group not in (HOOKS_GROUP, KINDS_GROUP) or not check.name.startswith(
        ("descriptor_", "options_", "api_", "entry_point_")
    )
