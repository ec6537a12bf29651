"""A folder for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import OptionsSample


def samples() -> Iterator[OptionsSample]:
    """Yield a folder of the kit's in place of the user's cache."""
    yield OptionsSample("a folder", options=lambda folder: {"folder": str(folder / "weights"), "max_bytes": 2**26})
