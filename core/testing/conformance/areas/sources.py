"""Model sources: they answer for their own references and leave all others to others."""

from __future__ import annotations

from pathlib import Path

from core.api.descriptors import ModelSourceSpec
from core.api.errors import CheckpointError
from core.api.weights import ModelFiles, ModelSource
from core.testing.conformance.outcome import Check, NotApplicable, require, require_core_error
from core.testing.conformance.samples import SourceSample
from core.testing.conformance.subject import Subject

FOREIGN = ("", "core conformance: nobody's reference", "conformance+scheme:\\?", "\u2603 \u2603", "\n")
"""References that are no source's business: neither paths, nor hub ids, nor a name that anyone would give."""


def foreign_references_are_left_alone(subject: Subject) -> None:
    """A reference that is not its business gives None, at once and without an error."""
    for reference in FOREIGN:
        found = _source(subject).resolve(reference)
        require(found is None, f"it claims {reference!r}: {found!r}")


def default_is_as_declared(subject: Subject) -> None:
    """Asked for no model in particular, it answers exactly if the descriptor says that it is a default."""
    if not subject.spec(ModelSourceSpec).default:
        found = _source(subject).resolve(None)
        require(found is None, f"it offers {found!r} although its descriptor does not say `default`")
        return
    _require_files(subject, None)


def aliases_are_answered(subject: Subject) -> None:
    """Every alias leads to files, or to an error that says why not."""
    aliases = subject.spec(ModelSourceSpec).aliases
    if not aliases:
        raise NotApplicable("it has no aliases")
    for alias in aliases:
        _require_files(subject, alias)


def samples_resolve(subject: Subject) -> None:
    """The plugin's own references lead to files that exist, under the reference that was asked for."""
    makers = [sample.make for sample in subject.samples(SourceSample) if sample.make is not None]
    if not makers:
        raise NotApplicable("it ships no SourceSample with a reference")
    for make in makers:
        reference = make(subject.folder())
        found = _require_files(subject, reference)
        require(found is not None, f"its own reference {reference!r} is refused")


def missing_models_are_errors(subject: Subject) -> None:
    """A reference that is its own, but leads nowhere, gives a `CheckpointError`."""
    missing = [sample.missing for sample in subject.samples(SourceSample) if sample.missing is not None]
    if not missing:
        raise NotApplicable("it ships no SourceSample with a missing reference")
    for reference in missing:
        source = _source(subject)
        require_core_error(source.resolve, reference, what=f"resolve({reference!r})", kind=CheckpointError)


def _source(subject: Subject) -> ModelSource:
    source: ModelSource = subject.impl()()
    return source


def _require_files(subject: Subject, reference: str | None) -> ModelFiles | None:
    """Require that a reference is claimed; None if the model is not here, which is said with an error."""
    try:
        found = _source(subject).resolve(reference)
    except CheckpointError:
        return None
    require(isinstance(found, ModelFiles), f"{reference!r} gives {found!r}, due are ModelFiles")
    if found is not None:
        require(Path(found.path).exists(), f"{reference!r} leads to {found.path}, which does not exist")
        require(bool(found.name), f"{reference!r} gives a model without a name")
        same = reference is None or found.reference == reference
        require(same, f"{reference!r} is reported as {found.reference!r}")
    return found


CHECKS = tuple(
    Check(function)
    for function in (
        foreign_references_are_left_alone,
        default_is_as_declared,
        aliases_are_answered,
        samples_resolve,
        missing_models_are_errors,
    )
)
