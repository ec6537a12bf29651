"""Options for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator

from core.testing.conformance import ConnectorSample


def samples() -> Iterator[ConnectorSample]:
    """Yield a store of a few kilobytes, in which blocks are evicted all the time."""
    yield ConnectorSample("room for a few blocks", options=lambda _: {"capacity": 4096})
