"""Requests for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import RouteSample, Sample


def samples() -> Iterator[Sample]:
    """Yield requests and what is answered."""
    yield RouteSample("the page", "GET", "/", answer=b"<title>core</title>")
    yield RouteSample("no such file", "GET", "/ui/none.js", status=404)
    yield RouteSample("nothing to post", "POST", "/", {}, status=405)
