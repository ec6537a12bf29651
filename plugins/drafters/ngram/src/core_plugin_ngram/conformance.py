"""Options for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import OptionsSample


def samples() -> Iterator[OptionsSample]:
    """Yield the shortest lookup, one length alone, and lengths beyond most prompts."""
    yield OptionsSample("single tokens", options=lambda _: {"longest": 1, "shortest": 1})
    yield OptionsSample("three tokens", options=lambda _: {"longest": 3, "shortest": 3})
    yield OptionsSample("long and short", options=lambda _: {"longest": 64, "shortest": 1})
