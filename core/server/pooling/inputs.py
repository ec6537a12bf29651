"""The four forms of `input`, bounded before anything is tokenized."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from core.api.bodies import invalid
from core.frontend.conversation import Conversation
from core.frontend.prompts import PromptInput
from core.frontend.request import GenerationRequest
from core.server.entry import render_alone
from core.server.errors import ApiError
from core.server.pooling.protocol import MAX_INPUTS, InputBody
from core.server.state import ServerState


async def prompts_of(state: ServerState, body: InputBody) -> list[PromptInput]:
    """Return the prompts of a body: its `input`, or its `messages` as the model's template renders them.

    Raises:
        ApiError: 400, neither or both are given, or `input` has no such form.
        RequestError: The messages are wrong, or there is no template.
    """
    if body.messages is None:
        prompts = parse_input(body.input)
        return prompts if body.add_special_tokens is not False else [_bare(prompt) for prompt in prompts]
    if body.input is not None:
        raise ApiError(400, "Give either input or messages.", param="input")
    chat = Conversation(messages=body.messages, add_generation_prompt=bool(body.add_generation_prompt))
    return [(await render_alone(state, GenerationRequest(prompt=chat))).tolist()]


def parse_input(value: Any, param: str = "input") -> list[PromptInput]:
    """Return the prompts of a request. Raises `ApiError` 400."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not value:
        raise invalid(param, "must be a text, a list of texts, token ids, or a list of token-id lists; not empty")
    if type(value[0]) is int:
        return [_ids(value, param)]
    if len(value) > MAX_INPUTS:
        raise invalid(param, f"has {len(value)} entries; at most {MAX_INPUTS}")
    if all(isinstance(item, str) for item in value):
        if not all(value):
            raise invalid(param, "must not hold an empty text")
        return list(value)
    if all(isinstance(item, list) for item in value):
        return [_ids(item, param) for item in value]
    raise invalid(param, "must not mix texts, token ids and lists")


def _bare(prompt: PromptInput) -> PromptInput:
    return {"prompt": prompt, "add_special_tokens": False} if isinstance(prompt, str) else prompt


def size_of(prompts: Iterable[PromptInput]) -> tuple[int, int]:
    """Return how many prompts there are, and how many characters their texts have together."""
    found = [prompt.get("prompt") if isinstance(prompt, Mapping) else prompt for prompt in prompts]
    texts = [len(text) if isinstance(text, str) else 0 for text in found]
    return len(texts), sum(texts)


def _ids(ids: list[Any], param: str) -> list[int]:
    if not ids or not all(type(token) is int for token in ids):
        raise invalid(param, "must hold token ids as integers, at least one")
    return ids
