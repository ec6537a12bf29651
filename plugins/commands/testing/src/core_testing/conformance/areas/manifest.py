"""Every plugin: its manifest is data, cheap to read and without consequences."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from core.plugins.kinds import kind_of
from core_testing.conformance.outcome import Level, checks, require
from core_testing.conformance.subject import Shared, Subject
from core_testing.conformance.tools.interpreters import facts_of

BUDGET = 0.05
"""Seconds of processor time for importing a manifest, `core.api` being imported already."""

_TRIES = 3


def manifest_imports_nothing_heavy(subject: Subject) -> None:
    """Importing the entry point asks for no torch, triton, transformers, numpy or the like."""
    facts = _facts(subject)
    require(not facts["imports"], f"importing {subject.entry.value} asks for {', '.join(facts['imports'])}")
    require("error" not in facts, f"importing {subject.entry.value} failed: {facts.get('error')}")


def manifest_has_no_side_effects(subject: Subject) -> None:
    """Importing the entry point writes no file, opens no socket and starts no process."""
    facts = _facts(subject)
    require(not facts["effects"], f"importing {subject.entry.value}: {'; '.join(facts['effects'])}")


def manifest_imports_quickly(subject: Subject) -> None:
    """Importing the entry point takes at most 50 ms of processor time."""
    seconds = _facts(subject).get("seconds", 0.0)
    for _ in range(_TRIES - 1):
        if seconds <= BUDGET:
            return
        # A busy machine is no fault of the plugin's: the best of a few fresh interpreters counts.
        again = facts_of(replace(subject, shared=Shared([subject.entry])), "manifests")
        seconds = min(seconds, again.get("seconds", 0.0))
    require(
        seconds <= BUDGET, f"importing {subject.entry.value} takes {seconds * 1000:.0f} ms, allowed {BUDGET * 1000:g}"
    )


def descriptor_round_trips_through_json(subject: Subject) -> None:
    """Written as JSON and read again, the descriptor is equal."""
    descriptor = subject.descriptor
    text = json.dumps(descriptor.to_dict(), ensure_ascii=False).encode()
    again = type(descriptor)(**json.loads(text))
    require(again == descriptor, f"it comes back as {again!r}")


def api_is_in_the_window(subject: Subject) -> None:
    """The descriptor was written for an API integer that this core accepts."""
    kind, api = kind_of(subject.entry.group), subject.descriptor.api
    require(kind.accepts(api), f"API {api} is stated; this core accepts {kind.first_api} to {kind.api}")


def _facts(subject: Subject) -> dict[str, Any]:
    return facts_of(subject, "manifests")


CHECKS = checks(
    manifest_imports_nothing_heavy,
    manifest_has_no_side_effects,
    manifest_imports_quickly,
    descriptor_round_trips_through_json,
    api_is_in_the_window,
    level=Level.L0,
)
