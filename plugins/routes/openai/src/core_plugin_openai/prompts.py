"""The four forms of a completion's `prompt`, bounded before anything is tokenized."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.api import RequestError
from core.api.bodies import invalid

MAX_PROMPTS = 1024

Prompts = list[str | Sequence[int]]


def parse_prompts(value: Any, most: int | None) -> Prompts:
    """Return the prompts of a request. Raises `RequestError` 400.

    Args:
        most: Tokens that one may have; None where what is too long is cut.
    """
    if isinstance(value, str):
        return [_text(value)]
    if not isinstance(value, list) or not value:
        raise invalid("prompt", "must be a text, a list of texts, token ids, or a list of token-id lists; not empty")
    if type(value[0]) is int:
        return [_ids(value, most)]
    if len(value) > MAX_PROMPTS:
        raise invalid("prompt", f"has {len(value)} entries; at most {MAX_PROMPTS}")
    if isinstance(value[0], str) and all(isinstance(item, str) for item in value):
        return [_text(item) for item in value]
    if all(isinstance(item, list) for item in value):
        return [_ids(item, most) for item in value]
    raise invalid("prompt", "must not mix texts, token ids and lists")


def check_length(ids: Sequence[int], most: int, param: str) -> None:
    """Refuse ids that are more than the model's length. Raises `RequestError` 400."""
    if len(ids) > most:
        message = f"{param}: {len(ids)} tokens are more than the model's length of {most}."
        raise RequestError(message, param=param, code="context_length_exceeded")


def _text(text: str) -> str:
    if not text:
        raise invalid("prompt", "must not be empty")
    return text


def _ids(ids: list[int], most: int | None) -> list[int]:
    if not ids:
        raise invalid("prompt", "must not be empty")
    if most is not None:
        check_length(ids, most, "prompt")
    return ids
