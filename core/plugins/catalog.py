"""The catalogue: which plugins are installed, read from distribution metadata. No plugin code runs."""

from __future__ import annotations

import importlib.metadata
import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from core.api.errors import PluginError
from core.api.installed import FILE_PREFIX, InstalledPlugin
from core.plugins.kinds import KINDS_GROUP, OPTION_SECTION, kind_of
from core.plugins.known import Known, Table, advice, normalise
from core.plugins.unchanged import Unchanged
from core.signals import SignalExit
from core.suggest import FEW, nearest

log = logging.getLogger(__name__)

FILE_DRIVERS = "__core_drivers__"
"""Attribute of a plugin file that lists its descriptors."""

LEFT_OUT = "--plugins leaves it out"
"""Why a plugin that the allow-list does not name takes no part."""


DEFINING = (KINDS_GROUP, OPTION_SECTION.group)
"""Groups whose entry points say which options there are."""


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


@dataclass(frozen=True, slots=True)
class AllowList:
    """Which plugins may take part.

    Attributes:
        names: Plugins, as `matches` takes them.
        asked: What selection options name, per group: `name`, `name@distribution`. Asking for a plugin allows it.
    """

    names: tuple[str, ...]
    asked: Mapping[str, tuple[str, ...]]

    def allows(self, entry: Entry) -> bool:
        """Say whether `entry` may take part. A plugin file is given by name, so it may."""
        if entry.dist.startswith(FILE_PREFIX) or any(matches(text, entry) for text in self.names):
            return True
        return any(answers(ask, entry) for ask in self.asked.get(entry.group, ()))


class Catalogue:
    """Installed entry points of the groups of all kinds, sorted, without those the user disabled.

    Args:
        entries: What is installed; equal entries count once.
        disabled: Plugins never to use, as `matches` takes them.
        allowed: If given, nothing else is used.
    """

    def __init__(
        self, entries: Iterable[Entry], disabled: Iterable[str] = (), allowed: AllowList | None = None
    ) -> None:
        self._all = sorted(set(entries))
        self.disabled = tuple(disabled)
        self.allowed = allowed
        self._enabled = [entry for entry in self._all if not self._disabling(entry) and self._allows(entry)]

    @classmethod
    def scan(cls, disabled: Iterable[str] = ()) -> Catalogue:
        """Read the metadata of every distribution on `sys.path`; milliseconds."""
        return cls(installed(), disabled)

    def without(self, disabled: Iterable[str]) -> Catalogue:
        """Return this catalogue with further plugins disabled."""
        return Catalogue(self._all, (*self.disabled, *disabled), self.allowed)

    def including(self, entries: Iterable[Entry]) -> Catalogue:
        """Return this catalogue with further entries."""
        return Catalogue((*self._all, *entries), self.disabled, self.allowed)

    def limited(self, allowed: AllowList) -> Catalogue:
        """Return this catalogue with nothing usable but what `allowed` allows."""
        return Catalogue(self._all, self.disabled, allowed)

    def every(self) -> list[Entry]:
        """Return what is installed, whether it may be used or not."""
        return list(self._all)

    def usable(self) -> list[Entry]:
        """Return what may be used, by group, name and distribution."""
        return list(self._enabled)

    def of(self, entry: Entry) -> Catalogue:
        """Return a catalogue of one entry, under the same rules."""
        return Catalogue([entry], self.disabled, self.allowed)

    def groups(self) -> list[str]:
        """Return the groups that have an entry, disabled ones included."""
        return sorted({entry.group for entry in self._all})

    def entries(self, group: str) -> list[Entry]:
        """Return the usable entries of a group, by name, then distribution."""
        return [entry for entry in self._enabled if entry.group == group]

    def distributions(self) -> set[str]:
        """Return the comparable names of the distributions that have an entry."""
        return {normalise(entry.dist) for entry in self._all}

    def advice(self, rows: Iterable[Known], subject: str) -> str:
        """Return how to get `subject`, which `rows` bring, here; nothing about what the user left out."""
        installed, usable = self.distributions(), {normalise(entry.dist) for entry in self._enabled}
        return advice([row for row in rows if row.dist in usable or row.dist not in installed], subject, usable)

    def disabled_entries(self) -> list[Entry]:
        """Return what the user disabled."""
        return [entry for entry in self._all if self._disabling(entry)]

    def left_out(self, group: str) -> list[Entry]:
        """Return the entries of a group that the allow-list leaves out."""
        return [e for e in self._all if e.group == group and not self._allows(e) and not self._disabling(e)]

    def unknown_names(self) -> list[str]:
        """Return the names of the allow-list that match nothing installed."""
        names = self.allowed.names if self.allowed else ()
        return [text for text in names if not any(matches(text, entry) for entry in self._all)]

    def useless_disables(self) -> list[str]:
        """Return the disabled names that match nothing installed: usually a slip of the keyboard."""
        return [text for text in self.disabled if not any(matches(text, entry) for entry in self._all)]

    def find(self, group: str, ask: str) -> Entry:
        """Return the entry that `ask` (`name` or `name@distribution`) names.

        Raises:
            PluginError: CORE-P101 when it is not installed or disabled, CORE-P102 when two distributions provide it.
        """
        found = [entry for entry in self.entries(group) if answers(ask, entry)]
        if not found:
            raise self._missing(group, ask)
        if len(found) > 1:
            raise duplicate(found)
        return found[0]

    def exact(self, group: str, name: str, dist: str) -> Entry | None:
        """Return the entry of one distribution, disabled or not; None if it is not installed."""
        found = (entry for entry in self._all if (entry.group, entry.name) == (group, name))
        return next((entry for entry in found if normalise(entry.dist) == normalise(dist)), None)

    def against(self, entry: Entry) -> str:
        """Return why an installed entry takes no part; an empty text if it may."""
        if disabling := self._disabling(entry):
            return f"it is disabled by '{disabling}'"
        return "" if self._allows(entry) else LEFT_OUT

    def refusal(self, entry: Entry, ask: str) -> PluginError:
        """Return why an installed entry, asked for as `ask`, takes no part: CORE-P101."""
        label = kind_of(entry.group).label
        return PluginError("CORE-P101", f"{label} '{ask}' ({entry.owner}) cannot be used: {self.against(entry)}.")

    def _allows(self, entry: Entry) -> bool:
        return self.allowed is None or self.allowed.allows(entry)

    def _disabling(self, entry: Entry) -> str | None:
        return next((text for text in self.disabled if matches(text, entry)), None)

    def _missing(self, group: str, ask: str) -> PluginError:
        kind = kind_of(group)
        for entry in self._all:
            if entry.group == group and answers(ask, entry):
                return self.refusal(entry, ask)
        names = sorted({entry.name for entry in self.entries(group)})
        installed = f"Installed: {_shortest(names, group)}." if names else "None is installed."
        name, _, dist = ask.partition("@")
        owners = [entry.dist for entry in self.entries(group) if entry.name == name]
        if dist and owners:
            return PluginError(
                "CORE-P101",
                f"distribution '{dist}' provides no {kind.label} named '{name}'; it comes from {', '.join(owners)}.",
            )
        return PluginError("CORE-P101", f"no {kind.label} named '{ask}'. {installed}", hint=self._lead(group, name))

    def _lead(self, group: str, name: str) -> str:
        """Return where a name that is not installed leads: to its distribution, or to a name that is close to it."""
        names = sorted({entry.name for entry in self.entries(group)})
        table = Table.read()
        if any(normalise(name) == normalise(one) for one in names):
            return nearest(normalise(name), names)  # another spelling of what is installed
        known = self.advice(table.named(group, name), name)
        return known or nearest(name, names) or nearest(name, table.names(group))


def _shortest(names: Collection[str], group: str) -> str:
    if len(names) <= FEW:
        return ", ".join(names)
    return f"{len(names)}, which `core plugins list --kind {group.removeprefix('core.')}` lists"


def installed() -> Iterator[Entry]:
    """Yield the entries of each distribution once: the first on `sys.path` wins, as it does on import.

    Those of core's groups come first, then those of the groups that entry points of `core.kinds` define.
    """
    seen: set[str] = set()
    defined: set[str] = set()
    for entries in _each(_entries, seen):
        defined |= {entry.name for entry in entries if entry.group == KINDS_GROUP}
        yield from entries
    if defined:  # nobody else pays for a second look
        for entries in _each(_others, set()):
            yield from (entry for entry in entries if entry.group in defined)


def definitions() -> list[Entry]:
    """Return the entry points that define kinds or options; of other distributions nothing but one file is read."""
    found = (dist for dist in importlib.metadata.distributions() if _defines(_text_of(dist)))
    return [one for entries in _each(_entries, set(), found) for one in entries if one.group in DEFINING]


def _defines(text: str) -> bool:
    return any(f"[{group}]" in text for group in DEFINING)


def _text_of(dist: importlib.metadata.Distribution) -> str:
    try:
        return _texts.of(dist)
    except (OSError, UnicodeDecodeError):
        return ""  # the catalogue tells of it


def _each(
    read: Unchanged[list[Entry]], seen: set[str], dists: Iterable[importlib.metadata.Distribution] | None = None
) -> Iterator[list[Entry]]:
    for dist in importlib.metadata.distributions() if dists is None else dists:
        try:
            entries = read.of(dist)
        except PluginError as error:
            log.warning("%s", error)
            continue
        if entries and (name := normalise(entries[0].dist)) not in seen:
            seen.add(name)
            yield entries


def entries_of(dist: importlib.metadata.Distribution) -> list[Entry]:
    """Return what a distribution offers to core's groups.

    Raises:
        PluginError: CORE-P131, its metadata cannot be read.
    """
    return _read(dist, core=True)


def other_entries_of(dist: importlib.metadata.Distribution) -> list[Entry]:
    """Return the entry points of a distribution that are in none of core's groups. Raises as `entries_of`."""
    return _read(dist, core=False)


def _read(dist: importlib.metadata.Distribution, *, core: bool) -> list[Entry]:
    try:
        text = _texts.of(dist)
        if not text or (core and "[core." not in text):
            return []  # reading the name parses the whole metadata, so it is done for plugins only
        points = [point for point in dist.entry_points if point.group.startswith("core.") == core]
        if not points:
            return []
        metadata = dist.metadata  # parsed anew whenever it is asked for, and by `dist.version` too
        name, version = metadata["Name"], metadata["Version"]
        if not (name and version):
            raise ValueError("it states no name or version")
    except Exception as error:
        place = getattr(dist, "_path", None) or dist.locate_file("")
        reason = " ".join(str(error).split()) or type(error).__name__
        hint = "Install it again, or delete that folder; until then its plugins take no part."
        raise PluginError("CORE-P131", f"plugin metadata in {place} cannot be read: {reason}.", hint=hint) from error
    return [Entry(point.group, point.name, name, version, point.value) for point in points]


_texts = Unchanged(lambda dist: dist.read_text("entry_points.txt") or "", ("entry_points.txt",))
_FILES = ("entry_points.txt", "METADATA", "PKG-INFO")
_entries = Unchanged(entries_of, _FILES)
_others = Unchanged(other_entries_of, _FILES)


def project_of(dist: importlib.metadata.Distribution) -> Path | None:
    """Return the source folder of an editable distribution, None for any other."""
    try:
        direct = json.loads(dist.read_text("direct_url.json") or "{}")
        editable = bool(direct.get("dir_info", {}).get("editable"))
        url = urlsplit(direct.get("url", ""))
    except (ValueError, AttributeError):
        return None
    return Path(unquote(url.path)) if editable and url.scheme == "file" else None


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
