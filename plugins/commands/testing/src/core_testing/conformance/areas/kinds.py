"""Kinds that plugins define: whole, and what they name is there."""

from __future__ import annotations

from core_plugin_author.scaffold import scaffold

from core.api.kinds import Kind
from core.plugins.defined import read_kinds
from core.plugins.definition import faults_of
from core_testing.conformance.outcome import Failed, Level, NotApplicable, checks, require
from core_testing.conformance.subject import Subject


def definition_is_whole(subject: Subject) -> None:
    """The entry point names a kind whose group, option, descriptor, protocols, templates and checks are sound."""
    kind = _kind(subject)
    faults = list(faults_of(kind))
    require(not faults, f"{subject.entry.value}: {'; '.join(faults)}")


def templates_can_be_filled_in(subject: Subject) -> None:
    """`core plugins new` writes a project from its templates, whose Python files can be compiled."""
    kind = _kind(subject)
    if not kind.template:
        raise NotApplicable("it has no templates")
    try:
        made = scaffold(kind, "kit-sample", subject.folder())
        for path in made.written:
            if path.endswith(".py"):
                compile((made.folder / path).read_text(encoding="utf-8"), path, "exec")
    except Exception as error:
        raise Failed(f"{kind.template}: {type(error).__name__}: {error}") from error


def _kind(subject: Subject) -> Kind:
    found = read_kinds([subject.entry])
    for fault in found.faults:
        raise Failed(fault.reason)
    return found.kinds[subject.entry.name]


CHECKS = (*checks(definition_is_whole, level=Level.L0), *checks(templates_can_be_filled_in))
