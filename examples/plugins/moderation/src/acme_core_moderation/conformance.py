"""Requests for the conformance kit, which chooses no moderator: nothing is objected to."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import RouteSample, Sample

PATH = "/v1/moderations"


def samples() -> Iterator[Sample]:
    """Yield requests and what is answered."""
    yield RouteSample("a text", "POST", PATH, {"input": "Hello."}, answer=b'"flagged": false')
    yield RouteSample("texts", "POST", PATH, {"input": ["a", "b"]}, answer=b'"results": [{')
    yield RouteSample("no text", "POST", PATH, {"input": 5}, status=400, answer=b"input")
