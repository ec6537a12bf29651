"""Calls that bring data for the model's I/O processor: the form of their prompts, requests and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from core.api.io_processors import IORequest
from core.api.pooled import DataAnswer, PoolingParams, PoolingRequestOutput

DATA = "data"
"""The key of an offline prompt that is meant for the processor."""


def data_of(prompts: Any) -> list[Any] | None:
    """Return what offline prompts of the form `{"data": ...}` bring; None for prompts of any other form."""
    if isinstance(prompts, Mapping):
        return [prompts[DATA]] if set(prompts) == {DATA} else None
    if not isinstance(prompts, (list, tuple)) or not prompts:
        return None
    found = [data_of(one) if isinstance(one, Mapping) else None for one in prompts]
    return None if None in found else [one[0] for one in found if one is not None]


def io_request(data: Any, params: PoolingParams, task: str | None, request_id: str) -> IORequest:
    """Return a request as the processor sees it first."""
    given = {name: value for name, value in msgspec.structs.asdict(params).items() if value is not None}
    return IORequest(request_id, data, task, given)


def as_output(request: IORequest, done: DataAnswer) -> PoolingRequestOutput[Any]:
    """Return an answer as offline calls give it."""
    ids = [token for one in done.outputs for token in one.prompt_token_ids]
    cached = sum(one.num_cached_tokens for one in done.outputs)
    return PoolingRequestOutput(request.request_id, done.answer, ids, cached)
