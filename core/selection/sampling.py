"""Sampling parameters of plugins: no two of those that were chosen may call one alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.api.descriptors import LogitsSpec, ParticipantSpec
from core.api.errors import PluginError
from core.plugins.drivers import Candidate


def check_fields(chosen: Sequence[Candidate]) -> None:
    """Refuse plugins of which one declares a sampling parameter that another declares, or reads as an argument.

    One that core has is refused with the descriptor (`LogitsSpec`).

    Raises:
        PluginError: CORE-P165 with both plugins.
    """
    owners: dict[str, Candidate] = {}
    for candidate, name in _fields(chosen):
        other = owners.setdefault(name, candidate)
        if other is not candidate:
            raise _shared(name, other, candidate)
    for candidate in chosen:
        for name in getattr(candidate.descriptor, "args", ()) if _reads(candidate) else ():
            other = owners.get(name, candidate)
            if other is not candidate:
                raise _shared(name, other, candidate)


def _fields(chosen: Sequence[Candidate]) -> Iterator[tuple[Candidate, str]]:
    for candidate in chosen:
        if isinstance(candidate.descriptor, LogitsSpec):
            yield from ((candidate, one.name) for one in candidate.descriptor.fields)
        if isinstance(candidate.descriptor, ParticipantSpec):
            yield from ((candidate, name) for name in candidate.descriptor.honours)


def _reads(candidate: Candidate) -> bool:
    return isinstance(candidate.descriptor, LogitsSpec | ParticipantSpec)


def _shared(name: str, one: Candidate, other: Candidate) -> PluginError:
    both = " and ".join(f"'{each.descriptor.name}' ({each.entry.owner})" for each in (one, other))
    return PluginError(
        "CORE-P165",
        f"plugins {both} both take the sampling parameter '{name}' of requests.",
        hint="Start with one of them.",
    )
