"""Options that hook plugins have while a switch of core's is on, and what to say where none has any."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from core.api.errors import ConfigError
from core.plugins.drivers import typed
from core.plugins.known import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from core.config.resolved import Options
    from core.plugins.catalog import Catalogue
    from core.plugins.entry import Entry

PRESETS = "__core_presets__"
"""Attribute of a hook module: a dict from a switch of `switched` to the options that the plugin has while it is on."""


def switched(options: Options) -> Collection[str]:
    """Return the switches that are on, of those for which hook plugins may have presets: `compile`."""
    return ("compile",) if options.runtime.compile else ()


def preset_of(entry: Entry, switches: Iterable[str]) -> dict[str, Any]:
    """Return the options that a hook plugin has by some switches; what the user gives for it outranks them.

    Raises:
        PluginError: CORE-P108, its presets are no dict of dicts.
    """
    own = typed(entry, PRESETS, getattr(entry.load(), PRESETS, {}), dict)
    return {name: value for one in switches for name, value in typed(entry, PRESETS, own.get(one, {}), dict).items()}


def require_presets(switches: Iterable[str], hooks: Iterable[Entry], catalogue: Catalogue) -> None:
    """Refuse switches that no plugin among `hooks` has presets for.

    Raises:
        ConfigError: CORE-C119; the hint says which distribution to install, or that it is left out.
    """
    hooks = list(hooks)
    for one in switches:
        if not any(preset_of(entry, [one]) for entry in hooks):
            rows = Table.read().switching(one)
            there = [row.dist for row in rows if row.dist in catalogue.distributions()]
            hint = f"{there[0]} is installed, and left out (--plugins, --disable-plugin)." if there else ""
            text = f"--{one} was given, and no plugin that takes part carries it out."
            raise ConfigError("CORE-C119", text, hint=hint or catalogue.advice(rows, f"--{one}"))
