"""Prompts of pooling requests: every form becomes token ids that fit the model, cut only where the request says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from core.api.errors import RequestError
from core.engine.pooling import Pooling, PoolingMethod
from core.frontend.inputs import InputProcessor, PromptInput, Truncation
from core.frontend.pooling_results import PoolingParams

TRUNCATE = "truncate_prompt_tokens"


class Fitted(Protocol):
    """A text or a pair as `FastTokenizer.fit` returns it."""

    @property
    def ids(self) -> list[int]: ...

    @property
    def second(self) -> int: ...


@dataclass(frozen=True, slots=True)
class PoolingPrompt:
    """A prompt, ready to be sent."""

    ids: list[int]
    pooling: Pooling


class PoolingInputs:
    """Checks and tokenizes prompts.

    Args:
        inputs: The model's tokenizer, vocabulary and length.
    """

    def __init__(self, inputs: InputProcessor) -> None:
        self._inputs = inputs
        # Beyond the tokenizer protocol: without it there are no pairs, and cutting takes special tokens with it.
        self._fit = getattr(inputs.tokenizer, "fit", None)

    def prompts(
        self, prompts: Sequence[PromptInput], params: PoolingParams, method: PoolingMethod, param: str = "prompt"
    ) -> list[PoolingPrompt]:
        """Return single prompts. Raises `RequestError`; `param` names the field they came from."""
        limit = self._limit(params)
        given = [_text_or_ids(prompt, param) for prompt in prompts]
        texts = iter(self._texts([one for one in given if isinstance(one, str)], limit, param))
        every = [next(texts) if isinstance(one, str) else one for one in given]
        return [PoolingPrompt(self._checked(ids, limit, param), Pooling(method)) for ids in every]

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

    def _texts(self, texts: list[str], limit: int | None, param: str) -> list[list[int]]:
        if limit is not None:  # what is cut off anyway is not tokenized
            texts = [self._inputs.cut_text(text, Truncation(tokens=limit, side="right")) for text in texts]
        if limit is None or self._fit is None:
            return self._inputs.tokenize(texts, param=param, bounded=limit is None)
        return [one.ids for one in self._fitted([(text, None) for text in texts], limit, param)]

    def _fitted(self, texts: list[tuple[str, str | None]], limit: int | None, param: str) -> Sequence[Fitted]:
        for pair in texts if limit is None else ():
            for text in pair:
                self._inputs.check_chars(len(text or ""), param)
        try:
            found: Sequence[Fitted] = self._fit(texts, limit) if self._fit is not None else []
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


def _text_or_ids(prompt: Any, param: str) -> str | list[Any]:
    """Return the text or the token ids of any form of prompt."""
    if isinstance(prompt, Mapping):
        ids, text = prompt.get("prompt_token_ids"), prompt.get("prompt")
        unknown = sorted(map(str, prompt.keys() - {"prompt", "prompt_token_ids"}))
        if unknown:
            raise RequestError(f"{param}: a prompt object has no '{unknown[0]:.40}'", param=param)
        prompt = ids if ids is not None else text
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, (list, tuple)):
        raise RequestError(f"{param} must be a text or a list of token ids, got {type(prompt).__name__}", param=param)
    return list(prompt)
