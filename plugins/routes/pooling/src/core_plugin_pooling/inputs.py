"""The four forms of `input`, bounded before anything is tokenized."""

from __future__ import annotations

from typing import Any

from core.api import MAX_PROMPTS, ChatRequest, RequestError
from core.api.bodies import invalid
from core.api.io_processors import IOPrompt
from core_plugin_pooling.protocol import InputBody


def prompts_of(body: InputBody) -> list[IOPrompt | ChatRequest]:
    """Return the prompts of a body: its `input`, or its `messages`.

    Raises:
        RequestError: Neither or both are given, or `input` has no such form.
    """
    if body.messages is None:
        prompts = parse_input(body.input)
        return [*prompts] if body.add_special_tokens is not False else [_bare(prompt) for prompt in prompts]
    if body.input is not None:
        raise RequestError("Give either input or messages.", param="input")
    return [ChatRequest(messages=body.messages, opened=bool(body.add_generation_prompt))]


def parse_input(value: Any, param: str = "input") -> list[IOPrompt]:
    """Return the prompts of a request. Raises `RequestError`."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not value:
        raise invalid(param, "must be a text, a list of texts, token ids, or a list of token-id lists; not empty")
    if type(value[0]) is int:
        return [_ids(value, param)]
    if len(value) > MAX_PROMPTS:
        raise invalid(param, f"has {len(value)} entries; at most {MAX_PROMPTS}")
    if all(isinstance(item, str) for item in value):
        if not all(value):
            raise invalid(param, "must not hold an empty text")
        return list(value)
    if all(isinstance(item, list) for item in value):
        return [_ids(item, param) for item in value]
    raise invalid(param, "must not mix texts, token ids and lists")


def _bare(prompt: IOPrompt) -> IOPrompt:
    return {"prompt": prompt, "add_special_tokens": False} if isinstance(prompt, str) else prompt


def _ids(ids: list[Any], param: str) -> list[int]:
    if not ids or not all(type(token) is int for token in ids):
        raise invalid(param, "must hold token ids as integers, at least one")
    return ids
