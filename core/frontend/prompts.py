"""The forms in which a prompt may be given, taken apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from core.api.errors import RequestError

PromptInput = str | Sequence[int] | Mapping[str, Any]
"""A text, token ids, `{"prompt": text}` or `{"prompt_token_ids": ids}` (then `prompt` may give the text to report).

`{"prompt": text, "add_special_tokens": False}` leaves out what the tokenizer puts around a text, and `"truncation"`
(a `Truncation`) cuts a prompt that is too long.
"""

_PROMPT_KEYS = frozenset({"prompt", "prompt_token_ids", "add_special_tokens", "truncation"})
_FOREIGN_KEYS = {
    "prompt_embeds": "embeddings as a prompt are not accepted",
    "encoder_prompt": "this model has a decoder only; give the text as 'prompt'",
    "decoder_prompt": "this model has a decoder only; give the text as 'prompt'",
    "multi_modal_data": "this model reads text only",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """Cut a prompt that is too long instead of refusing it.

    Attributes:
        tokens: Most prompt tokens; -1 is as many as leave room for the output.
        side: Which end is cut off.

    Raises:
        RequestError: `tokens` is no such number.
    """

    tokens: int
    side: Literal["left", "right"] = "left"

    def __post_init__(self) -> None:
        if type(self.tokens) is not int or (self.tokens < 1 and self.tokens != -1):
            raise RequestError(
                f"truncate_prompt_tokens must be at least 1, or -1, got {self.tokens!r}", param="truncate_prompt_tokens"
            )
        if self.side not in ("left", "right"):
            raise RequestError(f"truncation_side must be left or right, got {self.side!r}", param="truncation_side")


Cut = tuple[Truncation, int | None]
"""How to cut a prompt, and how many tokens of output it must leave room for, if that is known."""


def truncating(prompt: PromptInput, truncation: Truncation | None) -> PromptInput:
    """Return a prompt of any form with what may be cut off it."""
    if truncation is None:
        return prompt
    given: Mapping[str, Any]
    if isinstance(prompt, Mapping):
        given = prompt
    else:
        given = {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": prompt}
    return {"add_special_tokens": True, **given, "truncation": truncation}


@dataclass(frozen=True, slots=True)
class Given:
    """A prompt taken apart: a text or ids, whether a text gets special tokens, and what may be cut off."""

    text: str | None
    ids: Sequence[Any] | None
    special: bool = True
    truncation: Truncation | None = None


def as_list(prompts: Any) -> list[PromptInput]:
    """Return one prompt or many as a list; a list of integers is one prompt. Raises `RequestError`."""
    if isinstance(prompts, (str, Mapping)):
        return [prompts]
    if not isinstance(prompts, Sequence):
        raise RequestError(f"prompts must be a text or a list, got {type(prompts).__name__}", param="prompt")
    one = bool(prompts) and isinstance(prompts[0], int)
    return [prompts] if one else list(prompts)


def split_prompt(prompt: Any) -> Given:
    """Return the parts of any form of prompt."""
    if isinstance(prompt, Mapping):
        given = _from_object(prompt)
    elif isinstance(prompt, str):
        given = Given(prompt, None)
    else:
        given = Given(None, prompt)
    if given.text is not None and not isinstance(given.text, str):
        raise RequestError(f"prompt must be a text, got {type(given.text).__name__}", param="prompt")
    if (given.text is None or given.ids is not None) and not isinstance(given.ids, (list, tuple)):
        got = type(given.ids).__name__
        raise RequestError(f"prompt must be a text or a list of token ids, got {got}", param="prompt")
    return given


def _from_object(prompt: Mapping[str, Any]) -> Given:
    for name, why in _FOREIGN_KEYS.items():
        if prompt.get(name) is not None:
            raise RequestError(f"{name}: {why}", param="prompt")
    text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    unknown = sorted(map(str, set(prompt) - _PROMPT_KEYS - set(_FOREIGN_KEYS)))
    if unknown or (text is None and ids is None):
        got = f", not {', '.join(unknown)}" if unknown else ""
        raise RequestError(f"a prompt object has 'prompt' or 'prompt_token_ids'{got}", param="prompt")
    truncation = prompt.get("truncation")
    if not isinstance(truncation, Truncation | None):
        raise RequestError("truncation must be a Truncation", param="prompt")
    return Given(text, ids, prompt.get("add_special_tokens") is not False, truncation)
