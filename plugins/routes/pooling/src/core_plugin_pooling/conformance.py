"""Requests for the conformance kit, whose engine generates: it is told what models give vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from core_testing.conformance import RouteSample, Sample

_REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "/v1/embeddings": {"input": "hi"},
    "/v2/embed": {"texts": ["hi"]},
    "/pooling": {"input": [1, 2]},
    "/classify": {"input": "hi"},
    "/score": {"text_1": "hi", "text_2": ["ho"]},
    "/rerank": {"query": "hi", "documents": ["ho"]},
}


def samples() -> Iterator[Sample]:
    """Yield requests and what is answered."""
    for path, body in _REQUESTS.items():
        yield RouteSample(f"{path} of a model that generates", "POST", path, body, status=400, answer=b"generates text")
        yield RouteSample(f"{path} of another model", "POST", path, {**body, "model": "x"}, status=404)
