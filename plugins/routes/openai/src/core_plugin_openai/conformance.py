"""Requests for the conformance kit, whose engine says "kit" to every prompt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from core_testing.conformance import RouteSample, Sample

_CHAT = "/v1/chat/completions"
_HELLO: dict[str, Any] = {"model": "kit", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}
_PROMPT: dict[str, Any] = {"model": "kit", "max_tokens": 8, "prompt": "hi"}
_INPUT: dict[str, Any] = {"model": "kit", "input": "hi"}


def samples() -> Iterator[Sample]:
    """Yield requests and what is answered."""
    yield from _of("openai", _openai())
    yield from _of("responses", _responses())


def _of(plugin: str, found: Iterator[RouteSample]) -> Iterator[Sample]:
    for sample in found:
        yield replace(sample, plugin=plugin)


def _openai() -> Iterator[RouteSample]:
    yield RouteSample("a chat", "POST", _CHAT, _HELLO, answer=b'"content":"kit"')
    yield RouteSample("a stream", "POST", _CHAT, {**_HELLO, "stream": True}, answer=b"data: [DONE]")
    yield RouteSample("a prompt", "POST", f"{_CHAT}/render", _HELLO, answer=b'"token_ids":')
    yield RouteSample("a completion", "POST", "/v1/completions", _PROMPT, answer=b'"text":"kit"')
    yield RouteSample("a strange model", "POST", _CHAT, {**_HELLO, "model": "x"}, status=404, answer=b"model_not_found")
    yield RouteSample("no prompt", "POST", "/v1/completions", {"model": "kit"}, status=400, answer=b'"param":"prompt"')
    yield RouteSample("the models", "GET", "/v1/models", answer=b'"id":"kit"')
    yield RouteSample("tokens", "POST", "/tokenize", {"prompt": "hi"}, answer=b'"count":')


def _responses() -> Iterator[RouteSample]:
    yield RouteSample("a response", "POST", "/v1/responses", _INPUT, answer=b'"text":"kit"')
    yield RouteSample("its events", "POST", "/v1/responses", {**_INPUT, "stream": True}, answer=b"response.completed")
    yield RouteSample("no response", "GET", "/v1/responses/resp_0", status=404, answer=b"response_not_found")
