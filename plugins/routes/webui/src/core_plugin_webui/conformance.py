"""Requests for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator

from core.testing.conformance import RouteSample, Sample


def samples() -> Iterator[Sample]:
    """Yield requests and what is answered."""
    yield RouteSample("the page", "GET", "/", answer=b'<script type="module" src="ui/app.mjs">')
    yield RouteSample("a script", "GET", "/ui/markdown.mjs", answer=b"export function parse(")
    yield RouteSample("no such file", "GET", "/ui/none.mjs", status=404)
    yield RouteSample("nothing to post", "POST", "/", {}, status=405)
