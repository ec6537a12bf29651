"""Sections of options: usable beside core's, plain as data, silent about secrets, the same by flag and variable."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from typing import Any

from core.api.errors import CoreError
from core.config.flags import add_option_flags
from core.config.load import LoadedOptions, load_options
from core.config.option_field import OptionField
from core.config.parser import CoreParser
from core.config.section import Section
from core.config.sections import read_sections
from core_testing.conformance.outcome import Failed, Level, NotApplicable, checks, require
from core_testing.conformance.subject import Subject

_SECRET_NAME = re.compile(r"(^|_)(key|token|secret|password|passphrase|credentials?|headers)$")


def section_is_usable(subject: Subject) -> None:
    """Its model can be imported, its names are free, and each option has a type, a default and a description."""
    _section(subject)


def descriptions_are_sentences(subject: Subject) -> None:
    """Each description is one or more sentences in a single line, as those of core's options."""
    for one in _section(subject).fields:
        text = one.description
        require(text == " ".join(text.split()) and text.endswith("."), f"{one.name}: {text!r} is no sentence of a line")


def defaults_are_plain_data(subject: Subject) -> None:
    """Values with the defaults are the same after JSON, and when they are given as values."""
    section = _section(subject)
    first = section.checked({})
    again = section.checked(first)
    require(again == first, f"given as values, its defaults become {again!r}")
    require(set(first) == {one.name for one in section.fields}, "values have other names than its options")


def secrets_are_marked(subject: Subject) -> None:
    """Options whose names say that they are secrets are marked so (`OptionMarks(secret=True)`)."""
    for one in _section(subject).fields:
        if one.kind in ("str", "mapping") and _SECRET_NAME.search(one.name):
            require(one.secret, f"{one.name} looks like a secret and is not marked as one")


def flag_and_variable_agree(subject: Subject) -> None:
    """A value given by flag is the value given by variable."""
    section, tried = _section(subject), 0
    for one in section.fields:
        for text in _texts(one):
            by_flag, by_variable = _loaded(_words(one, text)), _loaded((), {one.env: text})
            found = [getattr(getattr(loaded.options, one.section), one.name) for loaded in (by_flag, by_variable)]
            require(found[0] == found[1], f"{one.flag}={text} is {found[0]!r}, {one.env}={text} is {found[1]!r}")
            tried += 1
    if not tried:
        raise NotApplicable("none of its options takes a value that the kit can think of")


def _words(one: OptionField, text: str) -> tuple[str, ...]:
    if one.kind == "bool":
        return (one.flag if text == "true" else f"--no-{one.names[0]}",)
    return (f"{one.flag}={text}",)


def _texts(one: OptionField) -> Iterator[str]:
    """Yield texts that are values of an option."""
    if one.kind == "bool":
        yield from ("true", "false")
    elif one.kind == "choice":
        yield from map(str, one.choices)
    elif one.kind in ("int", "float") and one.default is not None:
        yield str(one.default)


def _loaded(words: tuple[str, ...] = (), environ: Mapping[str, str] | None = None) -> LoadedOptions:
    parser = CoreParser(prog="core serve")
    add_option_flags(parser)
    try:
        given: argparse.Namespace = parser.parse_args(list(words))
        return load_options(given, environ or {})
    except CoreError as error:
        shown: Any = words or environ
        raise Failed(f"{shown} is refused: {error}") from error


def _section(subject: Subject) -> Section:
    found = read_sections([subject.entry])
    for fault in found.faults:
        raise Failed(fault.reason)
    return found.usable[subject.entry.name]


CHECKS = (
    *checks(section_is_usable, level=Level.L0),
    *checks(descriptions_are_sentences, defaults_are_plain_data, secrets_are_marked, flag_and_variable_agree),
)
