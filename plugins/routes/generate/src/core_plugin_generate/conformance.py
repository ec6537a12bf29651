"""Requests for the conformance kit, whose engine says "kit" to every prompt."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import RouteSample, Sample


def samples() -> Iterator[Sample]:
    """Yield requests and what is answered."""
    yield RouteSample("SGLang", "POST", "/generate", {"text": "hi"}, answer=b'"text": "kit"')
    yield RouteSample("SGLang's stream", "POST", "/generate", {"text": ["a", "b"], "stream": True}, answer=b"[DONE]")
    yield RouteSample("SGLang's model", "GET", "/get_model_info", answer=b'"is_generation": true')
    yield RouteSample("llama.cpp", "POST", "/completion", {"prompt": "hi"}, answer=b'"content": "kit"')
    yield RouteSample(
        "llama.cpp's stream", "POST", "/completion", {"prompt": "hi", "stream": True}, answer=b"stop_type"
    )
    yield RouteSample("llama.cpp's model", "GET", "/props", answer=b'"model_alias": "kit"')
    yield RouteSample("no prompt", "POST", "/generate", {}, status=400, answer=b"either text or input_ids")
    yield RouteSample("no prompt", "POST", "/completion", {}, status=400, answer=b"invalid_request_error")
