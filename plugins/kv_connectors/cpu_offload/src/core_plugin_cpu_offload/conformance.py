"""Options for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import OptionsSample


def samples() -> Iterator[OptionsSample]:
    """Yield a store of a few kilobytes, in which blocks are evicted all the time."""
    yield OptionsSample("room for a few blocks", options=lambda _: {"capacity": 4096})
