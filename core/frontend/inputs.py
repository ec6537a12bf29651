"""Inputs: every form of prompt becomes token ids, every request is held against the model's limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.api.errors import RequestError
from core.api.tokenizer import Tokenizer
from core.engine.sampling import SamplingParams

PromptInput = str | Sequence[int] | Mapping[str, Any]
"""A text, token ids, `{"prompt": text}` or `{"prompt_token_ids": ids}` (then `prompt` may give the text to report).

`{"prompt": text, "add_special_tokens": False}` leaves out what the tokenizer puts around a text.
"""

_PROMPT_KEYS = frozenset({"prompt", "prompt_token_ids", "add_special_tokens"})


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as the engine needs it; `text` only when it was given."""

    text: str | None
    ids: list[int]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that passed every check. `params.max_tokens` is a number."""

    prompt: Prompt
    params: SamplingParams
    stop_ids: list[int]


class InputProcessor:
    """Checks and completes requests; the same for every front end.

    Args:
        vocab_size: Rows of the model's embedding; ids beyond the tokenizer's own may be valid.
        max_model_len: Longest prompt plus output, in tokens.
        check: Further check of a request's parameters; raises `RequestError`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        vocab_size: int,
        max_model_len: int,
        check: Callable[[SamplingParams], None] | None = None,
    ) -> None:
        self._check = check
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.max_model_len = max_model_len

    def prepare(self, prompt: PromptInput, params: SamplingParams) -> Prepared:
        """Return the request, ready to be sent. Raises `RequestError`; `param` names what is wrong."""
        return self.fit(self.prompt(prompt), self.complete(params))

    # -- prompts ---------------------------------------------------------------------------------------------------

    def prompt(self, prompt: PromptInput) -> Prompt:
        """Return the prompt's ids; a text is tokenised with the tokenizer's special tokens around it."""
        return self.prompts([prompt])[0]

    def prompts(self, prompts: Sequence[PromptInput]) -> list[Prompt]:
        """Return the ids of many prompts; their texts are tokenised together."""
        split = [_split(prompt) for prompt in prompts]
        tokenized = {special: iter(self._tokenized(split, special)) for special in (True, False)}
        found = [Prompt(text, next(tokenized[special]) if ids is None else list(ids)) for text, ids, special in split]
        for prompt in found:
            self.check_length(len(prompt.ids), "prompt")
            self.check_ids(prompt.ids, "prompt")
        return found

    def _tokenized(self, split: Sequence[tuple[str | None, Any, bool]], special: bool) -> list[list[int]]:
        texts = [text for text, ids, flag in split if ids is None and text is not None and flag is special]
        return self.tokenize(texts, param="prompt", add_special_tokens=special)

    def tokenize(self, texts: Sequence[str], *, param: str, add_special_tokens: bool = True) -> list[list[int]]:
        """Return the ids of each text; one that no tokenization can make fit is refused unread."""
        for text in texts:
            self._check_chars(text, param)
        try:
            return self.tokenizer.encode_batch(texts, add_special_tokens=add_special_tokens) if texts else []
        except UnicodeEncodeError as error:
            raise RequestError(f"{param} is not valid Unicode: {error.reason}", param=param) from error

    def check_length(self, tokens: int, param: str) -> None:
        """Refuse a prompt that leaves no room for a single token of output."""
        if tokens == 0:
            raise RequestError(f"{param} must not be empty", param=param)
        if tokens >= self.max_model_len:
            raise _too_long(self.max_model_len, f"your {param} resulted in {tokens} tokens", param, param)

    def _check_chars(self, text: str, param: str) -> None:
        if len(text) <= self.max_model_len:
            return  # the bound needs a look at the whole vocabulary, once; most requests never ask for it
        most = getattr(self.tokenizer, "max_token_chars", None)  # beyond the protocol: without it there is no bound
        if most is not None and len(text) > self.max_model_len * most:
            least = -(-len(text) // most)
            said = f"your {param} of {len(text)} characters has at least {least} tokens"
            raise _too_long(self.max_model_len, said, param, param)

    # -- parameters ------------------------------------------------------------------------------------------------

    def complete(self, params: SamplingParams) -> SamplingParams:
        """Return the parameters with bad words as ids. Raises `RequestError` for ids outside the vocabulary."""
        self._check_lists(params)
        if self._check is not None:
            self._check(params)
        if params.stop and not params.detokenize:
            raise RequestError("stop texts need detokenize, which is false", param="stop")
        if not params.bad_words:
            return params
        ids = [*params.bad_token_ids, *(ids for word in params.bad_words for ids in self._bad_word(word))]
        return params.replace(bad_token_ids=ids)

    def fit(self, prompt: Prompt, params: SamplingParams) -> Prepared:
        """Settle how many tokens the request may get."""
        room = self.max_model_len - len(prompt.ids)
        asked = params.max_tokens
        if asked is None:
            if params.min_tokens > room:
                raise RequestError(
                    f"min_tokens ({params.min_tokens}) is greater than the {room} tokens left after the prompt",
                    param="min_tokens",
                )
            params = params.replace(max_tokens=room)
        elif asked > room:
            size = len(prompt.ids)
            said = f"you requested {size + asked} tokens ({size} in the prompt, {asked} in the output)"
            raise _too_long(self.max_model_len, said, "max_tokens", "prompt or max_tokens")
        return Prepared(prompt, params, self.stop_ids(params))

    def stop_ids(self, params: SamplingParams) -> list[int]:
        """Return the ids that end the output."""
        eos = () if params.ignore_eos else self.tokenizer.eos_ids
        return list(dict.fromkeys([*eos, *params.stop_token_ids]))

    def _bad_word(self, word: str) -> list[list[int]]:
        """Return the ids of a word at the start of a line and after a blank, where they differ."""
        bare = word.lstrip() or word
        first, second = self.tokenize([bare, " " + bare], param="bad_words", add_special_tokens=False)
        return [ids for ids in ([first] if first == second else [first, second]) if ids]

    def _check_lists(self, params: SamplingParams) -> None:
        self.check_ids(params.stop_token_ids, "stop_token_ids")
        self.check_ids(params.allowed_token_ids or (), "allowed_token_ids")
        self.check_ids(list(params.logit_bias or ()), "logit_bias")
        for ids in params.bad_token_ids:
            if not ids:
                raise RequestError("bad_token_ids must not hold an empty sequence", param="bad_token_ids")
            self.check_ids(ids, "bad_token_ids")

    def check_ids(self, ids: Sequence[Any], param: str) -> None:
        """Raises `RequestError` unless all are ids of the vocabulary."""
        for token in ids:
            if type(token) is not int:
                raise RequestError(f"{param}: token ids must be integers, got {token!r:.80}", param=param)
            if not 0 <= token < self.vocab_size:
                raise RequestError(
                    f"{param}: token id {token} is out of the vocabulary (0 to {self.vocab_size - 1})", param=param
                )


def _split(prompt: Any) -> tuple[str | None, Any, bool]:
    """Return text and ids of any form of prompt, either of them None, and whether a text gets special tokens."""
    special = True
    if isinstance(prompt, Mapping):
        text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
        special = prompt.get("add_special_tokens") is not False
        unknown = sorted(map(str, set(prompt) - _PROMPT_KEYS))
        if unknown or (text is None and ids is None):
            got = f", not {', '.join(unknown)}" if unknown else ""
            raise RequestError(f"a prompt object has 'prompt' or 'prompt_token_ids'{got}", param="prompt")
    else:
        text, ids = (prompt, None) if isinstance(prompt, str) else (None, prompt)
    if text is not None and not isinstance(text, str):
        raise RequestError(f"prompt must be a text, got {type(text).__name__}", param="prompt")
    if (text is None or ids is not None) and not isinstance(ids, (list, tuple)):
        raise RequestError(f"prompt must be a text or a list of token ids, got {type(ids).__name__}", param="prompt")
    return text, ids, special


def _too_long(limit: int, said: str, param: str, remedy: str) -> RequestError:
    return RequestError(
        f"This model's maximum context length is {limit} tokens. However, {said}. "
        f"Please reduce the length of the {remedy}.",
        param=param,
        code="context_length_exceeded",
    )
