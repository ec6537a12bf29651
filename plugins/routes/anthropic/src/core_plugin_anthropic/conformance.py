"""Requests for the conformance kit, whose engine says "kit" to every prompt."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import RouteSample, Sample

_HELLO = {"model": "kit", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}


def samples() -> Iterator[Sample]:
    """Yield requests and what is answered."""
    yield RouteSample("a message", "POST", "/v1/messages", _HELLO, answer=b'"text":"kit"')
    yield RouteSample("a stream", "POST", "/v1/messages", {**_HELLO, "stream": True}, answer=b"event: message_stop")
    yield RouteSample("a prompt", "POST", "/v1/messages/render", _HELLO, answer=b'"token_ids":')
    yield RouteSample("its tokens", "POST", "/v1/messages/count_tokens", _HELLO, answer=b'"input_tokens":')
    yield RouteSample(
        "no limit", "POST", "/v1/messages", {"messages": []}, status=400, answer=b'"invalid_request_error"'
    )
    yield RouteSample(
        "a strange model", "POST", "/v1/messages", {**_HELLO, "model": "x"}, status=404, answer=b"not_found_error"
    )
