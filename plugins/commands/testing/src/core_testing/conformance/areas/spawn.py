"""Every plugin: it loads in a worker process, changes nobody else's code, and its options explain themselves."""

from __future__ import annotations

from typing import Any

from core.plugins.kinds import kind_of
from core_testing.conformance.outcome import Level, NotApplicable, checks, require
from core_testing.conformance.samples import OptionsSample
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.interpreters import facts_of
from core_testing.conformance.tools.options import every_options, required


def loads_in_a_spawned_process(subject: Subject) -> None:
    """A fresh process that replays a plan of this plugin loads its implementation and what else it names."""
    error = _facts(subject).get("error")
    require(error is None, f"replaying its plan in a fresh process failed: {error}")


def loads_twice_in_one_process(subject: Subject) -> None:
    """Replaying the plan a second time in one process gives the same implementation."""
    facts = _facts(subject)
    if "error" in facts:
        raise NotApplicable("it does not load at all")
    require(facts["same"], "the second replay of its plan gives another object")


def changes_nobody_elses_code(subject: Subject) -> None:
    """Importing manifest and implementation changes no attribute of core and replaces none of torch."""
    changes = _facts(subject)["changes"]
    require(not changes, f"importing it changes {', '.join(changes[:5])}: use core's seams instead of patches")


def runs_without_torch_where_core_does(subject: Subject) -> None:
    """Modules that core imports of it in processes without torch (probes, checks, kinds of the host) import none."""
    if not kind_of(subject.entry.group).torch_free:
        raise NotApplicable("it is imported in the worker only")
    facts = facts_of(subject, "manifests")["torch_free"]
    if "died" in facts:
        raise NotApplicable("it does not load at all")
    require(not facts["imports"], f"importing it asks for {', '.join(facts['imports'])}, which is not there")
    if "error" in facts:
        raise NotApplicable("it does not load at all")


def options_explain_every_field(subject: Subject) -> None:
    """Every option has a description."""
    fields = _options(subject).model_fields
    bare = [name for name, field in fields.items() if not (field.description or "").strip()]
    require(not bare, f"{subject.descriptor.options} has no description for {', '.join(bare)}")


def options_survive_json(subject: Subject) -> None:
    """The options, default ones and those of the samples, are equal when written as JSON and read again."""
    model, needed = _options(subject), required(subject)
    if needed and not subject.samples(OptionsSample):
        raise NotApplicable(f"the options {', '.join(needed)} have no default")
    for values in every_options(subject):
        made = model.model_validate(values)
        again = model.model_validate_json(made.model_dump_json())
        require(again == made, f"{made!r} comes back as {again!r}")


def _facts(subject: Subject) -> dict[str, Any]:
    return facts_of(subject, "implementations")


def _options(subject: Subject) -> Any:
    from pydantic import BaseModel

    path = subject.descriptor.options
    if path is None:
        raise NotApplicable("it has no options")
    model = subject.load(path)
    require(isinstance(model, type) and issubclass(model, BaseModel), f"{path} is not a pydantic model")
    return model


CHECKS = checks(
    loads_in_a_spawned_process,
    loads_twice_in_one_process,
    changes_nobody_elses_code,
    runs_without_torch_where_core_does,
    options_explain_every_field,
    options_survive_json,
    level=Level.L0,
)
