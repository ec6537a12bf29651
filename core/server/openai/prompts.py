"""The four forms of a completion's `prompt`, bounded before anything is tokenized."""

from __future__ import annotations

from typing import Any

from core.api.bodies import invalid
from core.frontend.prompts import PromptIds, PromptInput, prompt_ids
from core.server.errors import ApiError
from core.server.interface import ServedLLM

MAX_PROMPTS = 1024


def parse_prompts(
    value: Any, llm: ServedLLM, *, add_special_tokens: bool = True, whole: bool = True
) -> list[PromptInput]:
    """Return the prompts of a request. Raises `ApiError` 400.

    Args:
        whole: Nothing will be cut off a prompt that is too long.
    """
    if isinstance(value, str):
        return [_text(value, add_special_tokens)]
    if not isinstance(value, list) or not value:
        raise invalid("prompt", "must be a text, a list of texts, token ids, or a list of token-id lists; not empty")
    if _is_id(value[0]):
        return [_ids(value, llm, whole=whole)]
    if len(value) > MAX_PROMPTS:
        raise invalid("prompt", f"has {len(value)} entries; at most {MAX_PROMPTS}")
    if isinstance(value[0], str) and all(isinstance(item, str) for item in value):
        return [_text(item, add_special_tokens) for item in value]
    if all(isinstance(item, list) for item in value):
        return [_ids(item, llm, whole=whole) for item in value]
    raise invalid("prompt", "must not mix texts, token ids and lists")


def check_length(ids: list[int], most: int, param: str) -> None:
    """Refuse ids that are more than the model's length. Raises `ApiError` 400."""
    if len(ids) > most:
        message = f"{param}: {len(ids)} tokens are more than the model's length of {most}."
        raise ApiError(400, message, param=param, code="context_length_exceeded")


def check_ids(ids: list[int], vocab_size: int, param: str) -> None:
    """Refuse ids that the model does not have. Raises `ApiError` 400."""
    if not all(map(_is_id, ids)) or min(ids, default=0) < 0 or max(ids, default=0) >= vocab_size:
        raise ApiError(400, f"{param}: token ids must be integers from 0 to {vocab_size - 1}.", param=param)


def _text(text: str, add_special_tokens: bool) -> PromptInput:
    if not text:
        raise invalid("prompt", "must not be empty")
    return text if add_special_tokens else {"prompt": text, "add_special_tokens": False}


def _ids(ids: list[int], llm: ServedLLM, *, whole: bool) -> PromptIds:
    if not ids:
        raise invalid("prompt", "must not be empty")
    if whole:
        check_length(ids, llm.max_model_len, "prompt")
    check_ids(ids, llm.tokenizer.vocab_size, "prompt")
    return prompt_ids(ids)


def _is_id(value: object) -> bool:
    return type(value) is int
