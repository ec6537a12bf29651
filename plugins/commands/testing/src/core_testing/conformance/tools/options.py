"""Options that a plugin is made with: the default ones, and those that its samples have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core_testing.conformance.outcome import Failed, Unavailable
from core_testing.conformance.samples import OptionsSample
from core_testing.conformance.subject import Subject


def every_options(subject: Subject) -> Iterator[dict[str, Any]]:
    """Yield the default options, unless one is required, and then those of every sample, as core hands them over.

    Raises:
        Unavailable: An option is required, and no sample has it.
        Failed: A sample has options that the plugin does not take.
    """
    for make in every_maker(subject):
        yield make(subject.folder())


def every_maker(subject: Subject) -> Iterator[Callable[[Path], dict[str, Any]]]:
    """Yield what makes the options of `every_options` from an empty directory. Raises `Unavailable` as that does."""
    samples, needed = subject.samples(OptionsSample), required(subject)
    if needed and not samples:
        raise Unavailable(subject.wants(OptionsSample, f"its options {', '.join(needed)} have no default"))
    if not needed:
        yield lambda folder: _complete(subject, {}, "its default options")
    for sample in samples:
        yield partial(_of_sample, subject, sample)


def some_options(subject: Subject) -> dict[str, Any]:
    """Return the first of `every_options`."""
    return next(every_options(subject))


def required(subject: Subject) -> list[str]:
    """Return the names of the options that have no default."""
    path = subject.descriptor.options
    fields = subject.load(path).model_fields if path is not None else {}
    return [name for name, field in fields.items() if field.is_required()]


def _of_sample(subject: Subject, sample: OptionsSample, folder: Path) -> dict[str, Any]:
    return _complete(subject, dict(sample.options(folder)), f"'{sample.name}'")


def _complete(subject: Subject, given: dict[str, Any], title: str) -> dict[str, Any]:
    path = subject.descriptor.options
    if path is None:
        return given
    try:
        made: dict[str, Any] = subject.load(path).model_validate(given).model_dump(mode="json")
    except ValidationError as error:
        raise Failed(f"{title} are refused by {path}: {error.errors()[0]['msg']}") from error
    return made
