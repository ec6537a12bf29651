"""Options for core's conformance kit; imported by nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import OptionsSample


def samples() -> Iterator[OptionsSample]:
    """Yield a directory with room for everything, and one with room for little."""
    yield OptionsSample("roomy", lambda folder: {"path": str(folder)})
    yield OptionsSample("narrow", lambda folder: {"path": str(folder), "capacity": 8 * 2**10})
