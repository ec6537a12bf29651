"""Prompts of pooling requests: every form becomes token ids that fit the model, cut only where the request says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np

from core.api.errors import RequestError
from core.api.fronts import TaskInputs
from core.api.io_processors import IOPrompt
from core.api.pooled import PoolingParams
from core.api.tokenizer import FittedText, extras_of
from core_plugin_pool.engine import Array, Pooling, PoolingMethod

TRUNCATE = "truncate_prompt_tokens"

MAX_ARRAY_BYTES = 2**28
"""Most bytes of the arrays of one prompt."""

_KEYS = frozenset({"prompt", "prompt_token_ids", "add_special_tokens", "arrays"})


@dataclass(frozen=True, slots=True)
class PoolingPrompt:
    """A prompt, ready to be sent."""

    ids: list[int]
    pooling: Pooling

    @property
    def part(self) -> Pooling:
        """The part that travels with it: its `Pooling`."""
        return self.pooling

    def salt(self, given: str | None) -> str | None:
        """Return what keeps its cached prefixes apart from those of other requests."""
        if not self.pooling.arrays:
            return given
        digest = sha256(msgspec.msgpack.encode(sorted(self.pooling.arrays.items()))).hexdigest()
        return f"arrays {digest} {given or ''}"


class PoolingInputs:
    """Checks and tokenizes prompts.

    Args:
        inputs: The model's tokenizer, vocabulary and length.
    """

    def __init__(self, inputs: TaskInputs) -> None:
        self._inputs = inputs
        # Without it there are no pairs, and cutting takes special tokens with it.
        extras = extras_of(inputs.tokenizer)
        self._fit = extras.fit if extras.can_fit else None

    def prompts(
        self, prompts: Sequence[IOPrompt], params: PoolingParams, method: PoolingMethod, param: str = "prompt"
    ) -> list[PoolingPrompt]:
        """Return single prompts. Raises `RequestError`; `param` names the field they came from."""
        limit = self._limit(params)
        given = [_taken_apart(prompt, param) for prompt in prompts]
        texts = {special: self._texts(given, limit, param, special=special) for special in (True, False)}
        found = []
        for one in given:
            ids = one.ids if one.text is None else next(texts[one.special])
            found.append(PoolingPrompt(self._checked(ids, limit, param), Pooling(method, arrays=one.arrays)))
        return found

    def pairs(
        self, pairs: Sequence[tuple[str, str]], params: PoolingParams, method: PoolingMethod, param: str
    ) -> list[PoolingPrompt]:
        """Return pairs of texts, each as one prompt. Raises `RequestError`."""
        if self._fit is None:
            raise RequestError("this model's tokenizer cannot put two texts into one prompt", param=param)
        limit = self._limit(params)
        fitted = self._fitted([(first, second) for first, second in pairs], limit, param)
        return [PoolingPrompt(self._checked(one.ids, limit, param), Pooling(method, one.second)) for one in fitted]

    # ---------------------------------------------------------------------------------------------------------------

    def _limit(self, params: PoolingParams) -> int | None:
        asked, longest = params.truncate_prompt_tokens, self._inputs.max_model_len
        if asked is None:
            return None
        if asked > longest:
            raise RequestError(
                f"{TRUNCATE} ({asked}) is greater than the model's length, {longest} tokens", param=TRUNCATE
            )
        return longest if asked < 0 else asked

    def _texts(self, given: Sequence[_Given], limit: int | None, param: str, *, special: bool) -> Iterator[list[int]]:
        """Return the ids of the texts among the prompts that are to have special tokens, or are not."""
        texts = [one.text for one in given if one.text is not None and one.special is special]
        if not texts:
            return iter(())
        self._inputs.check_text(param)
        if limit is not None:  # what is cut off anyway is not tokenized
            texts = [self._inputs.part_of(text, limit, "right") for text in texts]
        if limit is None or self._fit is None or not special:
            bounded = limit is None
            return iter(self._inputs.tokenize(texts, param=param, add_special_tokens=special, bounded=bounded))
        return iter([one.ids for one in self._fitted([(text, None) for text in texts], limit, param)])

    def _fitted(self, texts: list[tuple[str, str | None]], limit: int | None, param: str) -> Sequence[FittedText]:
        for pair in texts if limit is None else ():
            for text in pair:
                self._inputs.check_chars(len(text or ""), param)
        try:
            found: Sequence[FittedText] = self._fit(texts, limit) if self._fit is not None else []
        except UnicodeEncodeError as error:
            raise RequestError(f"{param} is not valid Unicode: {error.reason}", param=param) from error
        except ValueError as error:
            raise RequestError(f"{TRUNCATE}: {error}", param=TRUNCATE) from error
        return found

    def _checked(self, ids: list[Any], limit: int | None, param: str) -> list[int]:
        ids = ids if limit is None else ids[:limit]
        longest = self._inputs.max_model_len
        if not ids:
            raise RequestError(f"{param} must not be empty", param=param)
        if len(ids) > longest:
            raise RequestError(
                f"This model's maximum context length is {longest} tokens. However, your {param} resulted in "
                f"{len(ids)} tokens. Please reduce its length, or set {TRUNCATE}.",
                param=param,
                code="context_length_exceeded",
            )
        self._inputs.check_ids(ids, param)
        return ids


@dataclass(frozen=True, slots=True)
class _Given:
    """A prompt taken apart; `ids` count where there is no text."""

    text: str | None
    ids: list[Any]
    special: bool = True
    arrays: dict[str, Array] = field(default_factory=dict)


def _taken_apart(prompt: Any, param: str) -> _Given:
    """Return the parts of any form of prompt."""
    special, arrays = True, {}
    if isinstance(prompt, Mapping):
        unknown = sorted(map(str, prompt.keys() - _KEYS))
        if unknown:
            raise RequestError(f"{param}: a prompt object has no '{unknown[0]:.40}'", param=param)
        special, arrays = prompt.get("add_special_tokens") is not False, _arrays(prompt.get("arrays"), param)
        ids = prompt.get("prompt_token_ids")
        prompt = ids if ids is not None else prompt.get("prompt")
    if isinstance(prompt, str):
        return _Given(prompt, [], special, arrays)
    if not isinstance(prompt, (list, tuple)):
        raise RequestError(f"{param} must be a text or a list of token ids, got {type(prompt).__name__}", param=param)
    return _Given(None, list(prompt), special, arrays)


def _arrays(given: Any, param: str) -> dict[str, Array]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(one, np.ndarray) for one in given.values()):
        raise RequestError(f"{param}: arrays must map names to numpy arrays", param=param)
    if sum(one.nbytes for one in given.values()) > MAX_ARRAY_BYTES:
        raise RequestError(f"{param}: the arrays of a prompt may have {MAX_ARRAY_BYTES} bytes", param=param)
    try:
        return {str(name): Array.of(one) for name, one in given.items()}
    except ValueError as error:
        raise RequestError(f"{param}: an array {error}", param=param) from error
