"""The four forms of `input`, bounded before anything is tokenized."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from core.frontend.inputs import PromptInput
from core.server.errors import ApiError
from core.server.pooling.protocol import MAX_INPUTS


def parse_input(value: Any, param: str = "input") -> list[PromptInput]:
    """Return the prompts of a request. Raises `ApiError` 400."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not value:
        raise _wrong(param, "must be a text, a list of texts, token ids, or a list of token-id lists; not empty.")
    if type(value[0]) is int:
        return [_ids(value, param)]
    if len(value) > MAX_INPUTS:
        raise _wrong(param, f"has {len(value)} entries; at most {MAX_INPUTS}.")
    if all(isinstance(item, str) for item in value):
        if not all(value):
            raise _wrong(param, "must not hold an empty text.")
        return list(value)
    if all(isinstance(item, list) for item in value):
        return [_ids(item, param) for item in value]
    raise _wrong(param, "must not mix texts, token ids and lists.")


def size_of(prompts: Iterable[PromptInput]) -> tuple[int, int]:
    """Return how many prompts there are, and how many characters their texts have together."""
    texts = [len(prompt) if isinstance(prompt, str) else 0 for prompt in prompts]
    return len(texts), sum(texts)


def _ids(ids: list[Any], param: str) -> list[int]:
    if not ids or not all(type(token) is int for token in ids):
        raise _wrong(param, "must hold token ids as integers, at least one.")
    return ids


def _wrong(param: str, why: str) -> ApiError:
    return ApiError(400, f"{param} {why}", param=param)
