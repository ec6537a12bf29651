"""Sections of options that plugins declare (`core.option_sections`), checked and kept.

What is installed is read again when a folder of the import path has changed. Where nothing is installed, no plugin is
imported; a section that cannot be used is left out and told of, and all other options work.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydantic import BaseModel

from core.api.descriptors import OptionSection
from core.api.errors import PluginError
from core.config.option_field import fields_of
from core.config.section import Section
from core.config.section_checks import Taken, reasons_against
from core.plugins.defined import definitions_at, stamps
from core.plugins.entry import Entry, duplicate
from core.plugins.kinds import OPTION_SECTION
from core.signals import SignalExit

if TYPE_CHECKING:
    from core.plugins.drivers import LoadFailure


@dataclass(frozen=True, slots=True)
class Sections:
    """The sections of options that installed plugins declare.

    Attributes:
        usable: The sections that can be used, by name.
        faults: Those that cannot, each with the reason.
        clashes: Names that several distributions have; the first of them is usable.
    """

    usable: Mapping[str, Section] = field(default_factory=lambda: MappingProxyType({}))
    faults: tuple[LoadFailure, ...] = ()
    clashes: tuple[PluginError, ...] = ()


_NOTHING = Sections()


def plugin_sections() -> Mapping[str, Section]:
    """Return the sections that installed plugins declare, by name."""
    return sections().usable


def sections() -> Sections:
    """Return what installed plugins declare. Their modules are imported once."""
    return _at(stamps())


@lru_cache(maxsize=4)
def _at(marks: tuple[tuple[str, int], ...]) -> Sections:
    entries = [entry for entry in definitions_at(marks) if entry.group == OPTION_SECTION.group]
    return read_sections(entries) if entries else _NOTHING


def read_sections(entries: Sequence[Entry]) -> Sections:
    """Import what entry points of the group name; one that cannot be used is no obstacle to the others."""
    found: dict[str, Section] = {}
    faults: list[LoadFailure] = []
    taken = Taken()
    for entry in sorted(entries):
        if entry.name in found:
            continue  # among the clashes
        section = _read(entry, taken)
        if isinstance(section, Section):
            found[entry.name] = section
            taken.add(section)
        else:
            faults.append(section)
    return Sections(MappingProxyType(found), tuple(faults), tuple(_clashes(entries)))


def _clashes(entries: Sequence[Entry]) -> Iterator[PluginError]:
    for name in sorted({entry.name for entry in entries}):
        rivals = sorted(entry for entry in entries if entry.name == name)
        if len(rivals) > 1:
            error = duplicate(rivals)
            yield PluginError(error.code, error.message, hint="A section has one declaration: uninstall the other.")


def _read(entry: Entry, taken: Taken) -> Section | LoadFailure:
    try:
        loaded = entry.load()
        if not _fits(entry, loaded):
            from core.plugins.drivers import Candidate, checked  # where nothing is wrong, nobody pays for it

            candidate = checked(entry, loaded)
            if not isinstance(candidate, Candidate):
                return candidate
        model = resolve_name(loaded.impl)
    except SignalExit:
        raise
    except (Exception, SystemExit) as error:
        return _fault(entry, "it failed to import", error, code="CORE-P103")
    if not (inspect.isclass(model) and issubclass(model, BaseModel)):
        return _fault(entry, f"{loaded.impl} is no pydantic model")
    try:
        section = Section(entry, loaded, model, tuple(fields_of(entry.name, model)))
        reasons = list(reasons_against(section, taken))
        if not reasons:
            section.checked({})  # its defaults fit, or nobody could start
    except Exception as error:
        return _fault(entry, "it has options that cannot be", error)
    return _fault(entry, "; ".join(reasons)) if reasons else section


def _fits(entry: Entry, loaded: object) -> bool:
    """Say whether an entry point names a section of its name that needs nothing but this core."""
    if not isinstance(loaded, OptionSection) or loaded.name != entry.name:
        return False
    return OPTION_SECTION.accepts(loaded.api) and not (loaded.requires or loaded.imports)


def _fault(entry: Entry, reason: str, error: BaseException | None = None, *, code: str = "CORE-P133") -> LoadFailure:
    from core.plugins.drivers import LoadFailure, describe

    text = reason if error is None else f"{reason}: {describe(error)}"
    return LoadFailure(entry, code, text, f"Tell the authors of {entry.dist}.")
