"""Model sources: they answer for their own references and leave all others to others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from core.api.descriptors import ModelSourceSpec
from core.api.errors import CheckpointError, CoreError
from core.api.sources import Access, KeepsModels, ReachesOut, StoredModel
from core.api.weights import ModelFiles, ModelSource
from core_testing.conformance.outcome import NotApplicable, Unavailable, checks, require, require_core_error
from core_testing.conformance.samples import SourceSample
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.interpreters import ask

FOREIGN = ("", "core conformance: nobody's reference", "conformance+scheme:\\?", "\u2603 \u2603", "\n")
"""References that are no source's business: neither paths, nor hub ids, nor a name that anyone would give."""

Resolve = Callable[[str | None], ModelFiles | None]


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
    _require_files(_source(subject).resolve, None)


def aliases_are_answered(subject: Subject) -> None:
    """Every alias leads to files, or to an error that says why not."""
    aliases = subject.spec(ModelSourceSpec).aliases
    if not aliases:
        raise NotApplicable("it has no aliases")
    for alias in aliases:
        _require_files(_source(subject).resolve, alias)


def samples_resolve(subject: Subject) -> None:
    """The plugin's own references lead to files that exist, under the reference that was asked for."""
    samples = [sample for sample in subject.need_samples(SourceSample) if sample.make is not None]
    if not samples:
        raise Unavailable("no SourceSample of it has a reference that leads somewhere")
    for sample in samples:
        folder = subject.folder()
        reference = sample.make(folder) if sample.make is not None else ""
        found = _require_files(partial(_resolve, subject, sample, folder), reference)
        require(found is not None, f"its own reference {reference!r} is refused")


def missing_models_are_errors(subject: Subject) -> None:
    """A reference that is its own, but leads nowhere, gives a `CheckpointError`."""
    samples = [sample for sample in subject.need_samples(SourceSample) if sample.missing is not None]
    if not samples:
        raise Unavailable("no SourceSample of it has a reference that leads nowhere")
    for sample in samples:
        folder = subject.folder()
        resolve = partial(_resolve, subject, sample, folder)
        require_core_error(resolve, sample.missing, what=f"resolve({sample.missing!r})", kind=CheckpointError)


def stored_models_are_there(subject: Subject) -> None:
    """Models that it says to be on this machine are, and have a reference; a source that keeps nothing does not say."""
    source = _source(subject)
    if not isinstance(source, KeepsModels):
        raise NotApplicable("it does not tell which models are on this machine")
    if isinstance(source, ReachesOut):
        source.use(Access(offline=True))
    for model in source.stored():
        require(isinstance(model, StoredModel), f"stored() gives {model!r}, due are StoredModels")
        require(bool(model.reference), f"a stored model at {model.path} has no reference")
        require(Path(model.path).exists(), f"stored model {model.reference!r} is at {model.path}, which does not exist")


def _source(subject: Subject) -> ModelSource:
    source: ModelSource = subject.impl()()
    return source


def _resolve(subject: Subject, sample: SourceSample, folder: Path, reference: str | None) -> ModelFiles | None:
    """Resolve a reference, in a process of its own if the sample has an environment for it."""
    if sample.environment is None:
        return _source(subject).resolve(reference)
    request = {"impl": subject.descriptor.impl, "reference": reference}
    facts = ask("resolved", request, sample.environment(folder))
    require("error" not in facts, f"resolving {reference!r} raised {facts.get('error')}")
    if "refused" in facts:
        raise CoreError.from_dict(facts["refused"])
    return ModelFiles.model_validate(facts["files"]) if facts["files"] is not None else None


def _require_files(resolve: Resolve, reference: str | None) -> ModelFiles | None:
    """Require that a reference is claimed; None if the model is not here, which is said with an error."""
    try:
        found = resolve(reference)
    except CheckpointError:
        return None
    require(isinstance(found, ModelFiles), f"{reference!r} gives {found!r}, due are ModelFiles")
    if found is not None:
        require(Path(found.path).exists(), f"{reference!r} leads to {found.path}, which does not exist")
        require(bool(found.name), f"{reference!r} gives a model without a name")
        same = reference is None or found.reference == reference
        require(same, f"{reference!r} is reported as {found.reference!r}")
    return found


CHECKS = checks(
    foreign_references_are_left_alone,
    default_is_as_declared,
    aliases_are_answered,
    samples_resolve,
    missing_models_are_errors,
    stored_models_are_there,
)
