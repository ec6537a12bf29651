"""Calls of the commands, for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import CommandSample


def samples() -> Iterator[CommandSample]:
    """Yield what is typed, and what comes of it."""
    yield CommandSample("as JSON", lambda folder: ["--json"], says="[", plugin="ps")
    yield CommandSample("no server of that name", lambda folder: [str(folder)], status=1, plugin="stop")
