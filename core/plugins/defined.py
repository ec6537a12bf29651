"""Kinds that plugins define: what installed entry points of the group `core.kinds` name, checked and kept.

An entry point is named like the entry-point group that it defines, so that the catalogue finds the plugins of the kind
without any code of a plugin. What is installed is read again when a folder of the import path has changed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from core.api.errors import PluginError
from core.api.kinds import Kind
from core.plugins.entry import Entry, duplicate
from core.plugins.kinds import KINDS, KINDS_GROUP
from core.plugins.metadata import definitions

if TYPE_CHECKING:
    from core.plugins.drivers import LoadFailure

OF_SCOPE = ("plugins", "disable_plugin", "plugin_file", "plugins_lock", "strict")
"""Options that say which plugins there are."""

OWN = "core."
"""Prefix of core's groups."""


class Defined(NamedTuple):
    """The kinds that installed plugins define.

    Attributes:
        kinds: The kinds that can be used, by group.
        definers: The entry point of each.
        faults: Definitions that cannot be used, each with the reason.
        clashes: Groups that several distributions define; the first of them is among the kinds.
    """

    kinds: Mapping[str, Kind]
    definers: Mapping[str, Entry]
    faults: tuple[LoadFailure, ...] = ()
    clashes: tuple[PluginError, ...] = ()


_NOTHING = Defined(MappingProxyType({}), MappingProxyType({}))


def defined_kinds() -> Mapping[str, Kind]:
    """Return the kinds that installed plugins define, by group."""
    return defined().kinds


def defined() -> Defined:
    """Return what installed plugins define. Their modules are imported once."""
    return _at(stamps())


def stamps() -> tuple[tuple[str, int], ...]:
    """Return the folders of the import path, each with when something was last installed into it."""
    found = []
    for folder in sys.path:
        try:
            found.append((folder, os.stat(folder or ".").st_mtime_ns))
        except OSError:
            continue
    return tuple(found)


@lru_cache(maxsize=4)
def definitions_at(_: tuple[tuple[str, int], ...]) -> tuple[Entry, ...]:
    """Return the entry points that define kinds or options, given what `stamps` returned."""
    return tuple(definitions())


@lru_cache(maxsize=4)
def _at(marks: tuple[tuple[str, int], ...]) -> Defined:
    entries = [entry for entry in definitions_at(marks) if entry.group == KINDS_GROUP]
    return read_kinds(entries) if entries else _NOTHING


def read_kinds(entries: Sequence[Entry]) -> Defined:
    """Import what entry points of the group name; one that cannot be used is no obstacle to the others."""
    from core.plugins.drivers import LoadFailure, describe  # where nothing is defined, nobody pays for it

    kinds: dict[str, Kind] = {}
    definers: dict[str, Entry] = {}
    faults: list[LoadFailure] = []
    for entry in sorted(entries):
        try:
            loaded = entry.load()
        except Exception as error:
            faults.append(LoadFailure(entry, "CORE-P103", f"it failed to import: {describe(error)}"))
            continue
        reasons = list(_against(entry, loaded, list(kinds.values())))
        if reasons:
            hint = f"Tell the authors of {entry.dist}."
            faults.append(LoadFailure(entry, "CORE-P132", "; ".join(reasons), hint))
        elif entry.name not in kinds:
            kinds[entry.name], definers[entry.name] = loaded, entry
    return Defined(MappingProxyType(kinds), MappingProxyType(definers), tuple(faults), tuple(_clashes(entries)))


def _clashes(entries: Sequence[Entry]) -> Iterator[PluginError]:
    for group in sorted({entry.name for entry in entries}):
        rivals = sorted(entry for entry in entries if entry.name == group)
        if len(rivals) > 1:
            error = duplicate(rivals)
            yield PluginError(error.code, error.message, hint="A group has one definition: uninstall the other.")


def _against(entry: Entry, kind: object, others: Sequence[Kind]) -> Iterator[str]:
    """Yield what keeps an object from being the kind that an entry point defines."""
    if not isinstance(kind, Kind):
        yield f"{entry.value} is a {type(kind).__name__}, not a core.api.Kind"
        return
    if kind.group != entry.name:
        yield f"its kind defines '{kind.group}', its entry point is named '{entry.name}'"
    if kind.group in KINDS or f"{kind.group}.".startswith(OWN):
        yield f"groups that begin with {OWN} are core's"
    if not kind.descriptor:
        yield "it names no descriptor"
    if kind.tier != "provisional":
        yield "kinds of plugins are provisional"
    yield from _against_option(kind, others)


def _against_option(kind: Kind, others: Sequence[Kind]) -> Iterator[str]:
    if kind.also:
        yield "further options are core's alone"
    if not kind.option:
        return
    names = core_option_names() | {other.option for other in others}
    if not (kind.option.isidentifier() and kind.option == kind.option.lower()):
        yield f"'{kind.option}' cannot be an option: it takes small letters, digits and _"
    elif kind.option in names:
        yield f"there is an option '{kind.option}' already"


def core_option_names() -> frozenset[str]:
    """Return the names of core's options, with `_`: those of its sections, of scopes, and of its kinds."""
    from core.options.names import option_names  # pydantic is loaded where a kind has an option, and not before

    return option_names() | {*OF_SCOPE, *(option for kind in KINDS.values() for option in kind.options)}
