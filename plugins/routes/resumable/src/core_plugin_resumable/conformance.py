"""Requests for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import RouteSample, Sample


def samples() -> Iterator[Sample]:
    """Yield requests and what is answered."""
    yield RouteSample("all of them", "GET", "/v1/streams", answer=b'"data":[]')
    yield RouteSample("none of this name", "GET", "/v1/stream/x", status=404, answer=b"stream_not_found")
    yield RouteSample("nothing to forget", "DELETE", "/v1/stream/x", status=404, answer=b"stream_not_found")
