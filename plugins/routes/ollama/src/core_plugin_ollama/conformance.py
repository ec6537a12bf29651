"""Requests for the conformance kit, whose engine says "kit" to every prompt."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import RouteSample, Sample

_HELLO = {"model": "kit", "messages": [{"role": "user", "content": "hi"}]}


def samples() -> Iterator[Sample]:
    """Yield requests and what is answered."""
    yield RouteSample("a stream of a chat", "POST", "/api/chat", _HELLO, answer=b'"done_reason": "stop"')
    yield RouteSample("a whole chat", "POST", "/api/chat", {**_HELLO, "stream": False}, answer=b'"content": "kit"')
    yield RouteSample(
        "a generation", "POST", "/api/generate", {"prompt": "hi", "stream": False}, answer=b'"response": "kit"'
    )
    yield RouteSample("a raw one", "POST", "/api/generate", {"prompt": "hi", "raw": True}, answer=b'"response": "k"')
    yield RouteSample("the models", "GET", "/api/tags", answer=b'"name": "kit"')
    yield RouteSample("the version", "GET", "/api/version", answer=b'"version": "')
    yield RouteSample("the root page", "GET", "/", answer=b"Ollama is running")
    yield RouteSample("a strange model", "POST", "/api/show", {"model": "x"}, status=404, answer=b'{"error":')
    yield RouteSample("another model", "POST", "/api/pull", {"model": "x"}, status=501, answer=b"one model")
    yield RouteSample("no embeddings", "POST", "/api/embed", {"input": "x"}, status=400, answer=b"does not support")
