"""The forms in which a prompt may be given, and the one that the engine is sent."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from core.api.errors import RequestError

PromptIds: TypeAlias = "array[int]"
"""Token ids of a prompt, as int32.

They are converted once, where they arise (`prompt_ids`), and stay as they are until the bytes of `Add.prompt`. As a
`Sequence[int]` with elements that are Python's integers they can be shown to plugins, and numpy reads them uncopied.
"""

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


def truncation(tokens: int | None, side: Literal["left", "right"] | None) -> Truncation | None:
    """Return what the fields of a request say of it. Raises `RequestError`: a side without a number of tokens."""
    if tokens is not None:
        return Truncation(tokens=tokens, side=side or "left")
    if side is not None:
        raise RequestError("truncation_side needs truncate_prompt_tokens.", param="truncation_side")
    return None


Cut = tuple[Truncation, int | None]
"""How to cut a prompt, and how many tokens of output it must leave room for, if that is known."""


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """A prompt as the engine needs it; `text` only when it was given."""

    text: str | None
    ids: PromptIds


def prompt_ids(ids: Iterable[int]) -> PromptIds:
    """Return token ids as the engine takes them. They have to be integers of 32 bits (see `check_ids`)."""
    return array("i", ids)


def check_ids(ids: Sequence[Any], vocab_size: int, param: str) -> None:
    """Raises `RequestError` unless all are ids of the vocabulary."""
    if not ids:
        return
    if isinstance(ids, array):  # integers for sure: numpy looks at them a hundred times faster
        found = np.frombuffer(ids, np.int32)
        if found.min() >= 0 and found.max() < vocab_size:
            return
    elif {*map(type, ids)} == {int} and min(ids) >= 0 and max(ids) < vocab_size:
        return
    for token in ids:
        if type(token) is not int:
            raise RequestError(f"{param}: token ids must be integers, got {token!r:.80}", param=param)
        if not 0 <= token < vocab_size:
            raise RequestError(
                f"{param}: token id {token} is out of the vocabulary (0 to {vocab_size - 1})", param=param
            )


@dataclass(frozen=True, slots=True)
class GivenPrompt:
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


def split_prompt(prompt: Any, truncation: Truncation | None = None) -> GivenPrompt:
    """Return the parts of any form of prompt.

    Args:
        truncation: What may be cut off it; None: what the prompt itself says.
    """
    if isinstance(prompt, Mapping):
        given = _from_object(prompt)
    elif isinstance(prompt, str):
        given = GivenPrompt(prompt, None)
    else:
        given = GivenPrompt(None, prompt)
    if given.text is not None and not isinstance(given.text, str):
        raise RequestError(f"prompt must be a text, got {type(given.text).__name__}", param="prompt")
    if (given.text is None or given.ids is not None) and not _are_ids(given.ids):
        got = type(given.ids).__name__
        raise RequestError(f"prompt must be a text or a list of token ids, got {got}", param="prompt")
    return given if truncation is None else replace(given, truncation=truncation)


def _are_ids(ids: Any) -> bool:
    return isinstance(ids, (list, tuple)) or (isinstance(ids, array) and ids.typecode == "i")


def _from_object(prompt: Mapping[str, Any]) -> GivenPrompt:
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
    return GivenPrompt(text, ids, prompt.get("add_special_tokens") is not False, truncation)
