"""The catalogue: which plugins are installed, read from distribution metadata. No plugin code runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from core.api.errors import PluginError
from core.api.installed import FILE_PREFIX
from core.plugins.entry import Entry, answers, duplicate, matches
from core.plugins.kinds import kind_of
from core.plugins.known import Known, Table, advice, normalise
from core.plugins.metadata import installed
from core.suggest import FEW, nearest

LEFT_OUT = "--plugins leaves it out"
"""Why a plugin that the allow-list does not name takes no part."""


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
