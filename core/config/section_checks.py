"""Checks of a plugin's section of options: names that are taken, and options that cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic_core import PydanticUndefined

from core.config.environment_names import OF_PLUGINS, SETTINGS
from core.config.option_field import OptionField
from core.config.section import Section
from core.options.names import SECTIONS
from core.plugins.defined import core_option_names, defined_kinds
from core.plugins.kinds import KINDS, ROUTE

PAGES = frozenset({"all", "plugins"})
"""Pages of help that are no sections."""

_FLAGS = """
    config debug fresh help in-reasoning json kind log-format log-level opt reasoning resolved set split timeout tools
    version
"""
FLAGS = frozenset(_FLAGS.split())
"""Flags of core's own commands that are no options."""


class Taken:
    """Names that a further section and its options may not have.

    Attributes:
        spoken: Whose each flag is, by the flag without dashes in front.
        titles: What sections and pages of help are called, with dashes.
    """

    def __init__(self) -> None:
        own = {_dashed(name) for name in core_option_names()}
        self.titles = {*SECTIONS, "select", *PAGES}
        self.spoken = dict.fromkeys({*own, *(f"no-{name}" for name in own)}, "core")
        self.spoken |= {_dashed(kind.option): kind.group for kind in defined_kinds().values() if kind.option}

    def add(self, section: Section) -> None:
        """Put a section's names among those that are taken."""
        self.titles.add(_dashed(section.entry.name))
        whose = f"section '{section.entry.name}' ({section.entry.owner})"
        self.spoken |= {spelling: whose for one in section.fields for spelling in _spellings(one)}


def reasons_against(section: Section, taken: Taken) -> Iterator[str]:
    """Yield what keeps a section from being used, in words."""
    name = section.entry.name
    if not _is_name(_plain(name)):
        yield f"'{name}' cannot be a section: it takes small letters, digits, - and _"
    elif _dashed(name) in taken.titles:
        yield f"there is a section '{name}' already"
    elif _dashed(name) in taken.spoken:
        yield f"there is an option '{name}' already, of {taken.spoken[_dashed(name)]}"
    if not section.fields:
        yield "its model has no fields"
    yield from _against_needs(section)
    mine: set[str] = set()
    for one in section.fields:
        yield from _against_option(one, taken, mine)
        mine |= set(_spellings(one))


def _against_needs(section: Section) -> Iterator[str]:
    known = {one.name for one in section.fields}
    for group, names in section.descriptor.needs.items():
        if group in KINDS and KINDS[group].driver != ROUTE.group:
            yield f"no option can need plugins of {group}, which core chooses"
        if strange := sorted(set(names) - known):
            yield f"what needs plugins of {group} is no option of it: {', '.join(strange)}"


def _against_option(one: OptionField, taken: Taken, mine: set[str]) -> Iterator[str]:
    for spelling in one.names:
        if not _is_name(_plain(spelling)):
            yield f"'{spelling}' cannot be an option: it takes small letters, digits and _"
        elif spelling in taken.titles | FLAGS or _is_setting(spelling):
            yield f"'{_plain(spelling)}' cannot be an option: the name has a meaning already"
    spellings = _spellings(one)
    if clashing := sorted(taken.spoken.keys() & set(spellings)):
        yield f"there is an option '{_plain(clashing[0])}' already, of {taken.spoken[clashing[0]]}"
    if mine & set(spellings) or len(set(spellings)) < len(spellings):
        yield f"the option {one.name} has a name twice"
    if not one.description:
        yield f"the option {one.name} has no description"
    if one.default is PydanticUndefined:
        yield f"the option {one.name} has no default"
    if one.bare is not None and one.kind not in ("str", "int", "float", "choice"):
        yield f"the flag of {one.name} cannot stand without a value"


def _spellings(one: OptionField) -> list[str]:
    """Return an option's flags without dashes in front, with the negations of a switch."""
    return [*one.names, *(f"no-{name}" for name in one.names if one.kind == "bool")]


def _is_setting(spelling: str) -> bool:
    variable = "CORE_" + _plain(spelling).upper()
    return variable in SETTINGS or variable.startswith(OF_PLUGINS)


def _is_name(text: str) -> bool:
    return text.isidentifier() and text.isascii() and text == text.lower() and not text.startswith("_")


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _plain(name: str) -> str:
    return name.replace("-", "_")
