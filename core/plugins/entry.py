"""One installed entry point: how it is loaded, and the words that mean it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from core.api.errors import PluginError
from core.api.installed import InstalledPlugin
from core.plugins.kinds import kind_of
from core.plugins.known import normalise
from core.signals import SignalExit

FILE_DRIVERS = "__core_drivers__"
"""Attribute of a plugin file that lists its descriptors."""


@dataclass(frozen=True, slots=True, order=True)
class Entry(InstalledPlugin):
    """One installed entry point, as core loads it."""

    @classmethod
    def of(cls, plugin: InstalledPlugin) -> Entry:
        """Return the entry of a plugin that came from outside core."""
        return plugin if isinstance(plugin, cls) else cls(*(getattr(plugin, one.name) for one in fields(plugin)))

    def load(self) -> Any:
        """Import the object. Raises whatever the plugin's module raises, but always an `Exception`."""
        try:
            loaded = importlib.metadata.EntryPoint(self.name, self.value, self.group).load()
            return self._listed(loaded) if self.value.endswith(f":{FILE_DRIVERS}") else loaded
        except SignalExit:
            raise
        except (AssertionError, SystemExit) as error:
            # stevedore lets the first through, everybody the second: neither may take core down with it.
            raise ImportError(f"{type(error).__name__} while importing {self.value}: {error}") from error

    def _listed(self, drivers: Sequence[Any]) -> Any:
        return next(one for one in drivers if (one.group, one.name) == (self.group, self.name))


def answers(ask: str, entry: Entry) -> bool:
    """Say whether `ask`, `name` or `name@distribution`, means `entry`."""
    name, _, dist = ask.partition("@")
    return entry.name == name and (not dist or normalise(entry.dist) == normalise(dist))


def matches(text: str, entry: Entry) -> bool:
    """Say whether `text` means `entry`: its distribution, or its name.

    A kind (with or without `core.`) before the name and a distribution behind it narrow it: `platforms:cpu@acme`.
    """
    before, at, dist = text.partition("@")
    group, _, name = before.rpartition(":")
    if group in ("", entry.group, entry.group.removeprefix("core.")) and answers(f"{name}{at}{dist}", entry):
        return True
    return normalise(text) == normalise(entry.dist)


def duplicate(found: Sequence[Entry]) -> PluginError:
    """Return CORE-P102 for entries of one kind and name, of which the user has to choose."""
    kind, name = kind_of(found[0].group), found[0].name
    owners = " and ".join(entry.owner for entry in found)
    asks = " or ".join(f"{kind.flag} {name}@{entry.dist}".strip() for entry in found)
    hint = f"Choose one: {asks}." if kind.flag else f"Disable one: --disable-plugin {found[0].dist}."
    return PluginError("CORE-P102", f"{len(found)} distributions provide {kind.label} '{name}': {owners}.", hint=hint)
