"""Requests for the conformance kit, whose engine says "kit" to every prompt and whose model is called so."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import RouteSample, Sample

HELLO = {"messages": [{"role": "user", "content": "hi"}]}
CHAT, OTHER = (f"/openai/deployments/{name}/chat/completions" for name in ("kit", "other"))
VERSION = {"api-version": "2024-10-21"}


def samples() -> Iterator[Sample]:
    """Yield requests and what is answered."""
    yield RouteSample("a chat", "POST", CHAT, HELLO, VERSION, answer=b'"content": "kit"')
    yield RouteSample(
        "a model of its own", "POST", CHAT, {**HELLO, "model": "gpt-4o"}, VERSION, answer=b'"model": "kit"'
    )
    yield RouteSample("a stream", "POST", CHAT, {**HELLO, "stream": True}, VERSION, answer=b"data: [DONE]")
    yield RouteSample("no version", "POST", CHAT, HELLO, status=404, answer=b"api-version")
    yield RouteSample("no deployment", "POST", OTHER, HELLO, VERSION, status=404, answer=b"DeploymentNotFound")
    yield RouteSample("no messages", "POST", CHAT, {}, VERSION, status=400, answer=b'{"error":')
