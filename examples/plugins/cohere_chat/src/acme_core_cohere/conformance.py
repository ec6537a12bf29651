"""Requests for the conformance kit, whose engine says "kit" to every prompt."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import RouteSample, Sample

HELLO = {"model": "kit", "messages": [{"role": "user", "content": "hi"}]}


def samples() -> Iterator[Sample]:
    """Yield requests and what is answered."""
    yield RouteSample("a chat", "POST", "/v2/chat", HELLO, answer=b'"content": [{"type": "text", "text": "kit"}]')
    yield RouteSample("a stream", "POST", "/v2/chat", {**HELLO, "stream": True}, answer=b"event: message-end")
    yield RouteSample("no messages", "POST", "/v2/chat", {"model": "kit"}, status=400, answer=b'{"message":')
    yield RouteSample("documents", "POST", "/v2/chat", {**HELLO, "documents": ["x"]}, status=400, answer=b"documents")
    yield RouteSample("a strange limit", "POST", "/v2/chat", {**HELLO, "p": 7.0}, status=400, answer=b"p must be")
