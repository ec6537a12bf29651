"""Inputs: every form of prompt becomes token ids, every request is held against the model's limits."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from core.api.errors import RequestError
from core.api.sampling_params import SamplingParams
from core.api.tokenizer import Tokenizer, extras_of
from core.frontend.prompts import (
    GivenPrompt,
    PromptIds,
    PromptInput,
    TokenizedPrompt,
    Truncation,
    check_ids,
    prompt_ids,
    split_prompt,
)
from core.frontend.request import GenerationRequest
from core.frontend.thinking import ThinkingMarks
from core.selection.no_tokenizer import READS_NO_TEXT, NoTokenizer

Ids = TypeVar("Ids", list[Any], PromptIds)

_CUT_MARGIN = 64
"""Tokens' worth of text that is kept beyond a cut, so that the tokens that stay are those of the whole text."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that passed every check, with all that the engine is told of it.

    Attributes:
        request: As its front end made it.
        prompt: Its prompt's token ids.
        params: Its parameters, completed: `max_tokens` is a number.
        stop_ids, held_ids: Those of `Add`.
        priority: The request's own, or what a plugin has made of it.
        parts: What the front halves of participants send with it, by name.
    """

    request: GenerationRequest
    prompt: TokenizedPrompt
    params: SamplingParams
    stop_ids: list[int]
    held_ids: list[int]
    priority: int
    parts: Mapping[str, Any] = field(default_factory=dict)


class InputProcessor:
    """Checks and completes requests; the same for every front end.

    Args:
        vocab_size: Rows of the model's embedding; ids beyond the tokenizer's own may be valid.
        max_model_len: Longest prompt plus output, in tokens.
        check: Further check of a request's parameters; raises `RequestError`.
        chars_per_token: Most characters that one token stands for; 0 tokenises texts of any length, None asks the
            tokenizer.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        vocab_size: int,
        max_model_len: int,
        check: Callable[[SamplingParams], None] | None = None,
        chars_per_token: int | None = None,
    ) -> None:
        self._check = check
        self._chars_per_token = chars_per_token
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.max_model_len = max_model_len
        self._marks = ThinkingMarks(tokenizer)

    def prepare(self, request: GenerationRequest) -> Prepared:
        """Return a request, ready to be sent; a conversation must have been rendered. Raises `RequestError`."""
        return self.settled(request, self.tokenized(request))

    def settled(self, request: GenerationRequest, prompt: TokenizedPrompt) -> Prepared:
        """Return a request whose prompt is read, with its parameters completed. Raises `RequestError`."""
        return self.fit(request, prompt, self.complete(request.params))

    # -- prompts ---------------------------------------------------------------------------------------------------

    def tokenized(self, request: GenerationRequest) -> TokenizedPrompt:
        """Return a request's prompt; a conversation must have been rendered. Raises `RequestError`."""
        if request.rendered_ids is not None:
            return TokenizedPrompt(None, request.rendered_ids)
        given = split_prompt(request.prompt, request.truncation)
        ids: Any = given.ids
        if ids is None:
            [ids] = self._tokenized([given], given.special)
        return self.read(given, ids, request.params.max_tokens)

    def prompt(self, prompt: PromptInput) -> TokenizedPrompt:
        """Return the prompt's ids; a text is tokenised with the tokenizer's special tokens around it."""
        return self.prompts([prompt])[0]

    def prompts(self, prompts: Sequence[PromptInput]) -> list[TokenizedPrompt]:
        """Return the ids of many prompts; their texts are tokenised together. Raises `RequestError`."""
        split = [split_prompt(prompt) for prompt in prompts]
        tokenized = {special: iter(self._tokenized(split, special)) for special in (True, False)}
        return [self.read(one, next(tokenized[one.special]) if one.ids is None else one.ids) for one in split]

    def read(self, given: GivenPrompt, ids: Any, max_tokens: int | None = None) -> TokenizedPrompt:
        """Return a prompt whose ids are known: its own, or its text's; cut where it may be, and checked.

        Args:
            max_tokens: Room for the output that `Truncation(tokens=-1)` leaves.

        Raises:
            RequestError: There are none or too many, or one is not of the vocabulary.
        """
        cut = given.truncation
        if cut is not None:
            ids = self.truncated(ids, cut, max_tokens)
        self.check_length(len(ids), "prompt")
        check_ids(ids, self.vocab_size, "prompt")
        kept = ids if isinstance(ids, array) else prompt_ids(ids)
        return TokenizedPrompt(given.text if cut is None else None, kept)

    def _tokenized(self, split: Sequence[GivenPrompt], special: bool) -> list[PromptIds]:
        texts: list[str] = []
        for one in split:
            if one.ids is None and one.text is not None and one.special is special:
                texts += self.readable(one.text, one.truncation)
        found = self.tokenize(texts, param="prompt", add_special_tokens=special, bounded=False)
        return [prompt_ids(ids) for ids in found]

    def readable(self, text: str, truncation: Truncation | None) -> list[str]:
        """Return what of a text is worth tokenising. Raises `RequestError` if it cannot fit."""
        if truncation is not None:
            return [self.cut_text(text, truncation)]
        self.check_chars(len(text), "prompt")
        return [text]

    def truncated(self, ids: Ids, truncation: Truncation, max_tokens: int | None) -> Ids:
        """Return the ids as `truncation` leaves them; the token that begins every prompt stays.

        Raises:
            RequestError: It asks for more tokens than the model can take.
        """
        room = self.max_model_len - max(1, max_tokens or 1)
        keep = max(1, room) if truncation.tokens == -1 else truncation.tokens
        if keep >= self.max_model_len:
            said = f"truncate_prompt_tokens ({keep}) leaves no room for output: the model's length is"
            raise RequestError(f"{said} {self.max_model_len}", param="truncate_prompt_tokens")
        if len(ids) <= keep:
            return ids
        if truncation.side == "right":
            return ids[:keep]
        first = ids[:1] if ids[0] == self.tokenizer.bos_id and keep > 1 else ids[:0]
        return first + ids[len(ids) - keep + len(first) :]

    def cut_text(self, text: str, truncation: Truncation) -> str:
        """Return the part of a text that matters for `truncated`."""
        return self.cut_texts([text], truncation)[0]

    def part_of(self, text: str, tokens: int, side: Literal["left", "right"]) -> str:
        """Return the part of a text that matters where it is cut on `side` to so many tokens."""
        return self.cut_text(text, Truncation(tokens=tokens, side=side))

    def cut_texts(self, texts: Sequence[str], truncation: Truncation) -> list[str]:
        """Return the pieces of a text that matter for `truncated`, so that the rest is not tokenised at all."""
        most = self._bound()
        keep = self.max_model_len if truncation.tokens == -1 else truncation.tokens
        if most is None:
            return list(texts)
        room, right = (keep + _CUT_MARGIN) * most, truncation.side == "right"
        found: list[str] = []
        for text in texts if right else reversed(texts):
            if len(text) > room:
                text = text[:room] if right else text[len(text) - room :]
            room -= len(text)
            found.append(text)
            if room <= 0:
                break
        return found if right else found[::-1]

    def tokenize(
        self, texts: Sequence[str], *, param: str, add_special_tokens: bool = True, bounded: bool = True
    ) -> list[list[int]]:
        """Return the ids of each text; with `bounded`, one that no tokenization can make fit is refused unread."""
        for text in texts if bounded else ():
            self.check_chars(len(text), param)
        with unicode_checked(param):
            return self.tokenizer.encode_batch(texts, add_special_tokens=add_special_tokens) if texts else []

    def check_length(self, tokens: int, param: str) -> None:
        """Refuse a prompt that leaves no room for a single token of output."""
        if tokens == 0:
            raise RequestError(f"{param} must not be empty", param=param)
        if tokens >= self.max_model_len:
            raise _too_long(self.max_model_len, f"your {param} resulted in {tokens} tokens", param, param)

    @property
    def reads_text(self) -> bool:
        """Whether the model has a tokenizer."""
        return not isinstance(self.tokenizer, NoTokenizer)

    def check_text(self, param: str) -> None:
        """Refuse a text where the model has no tokenizer. Raises `RequestError`."""
        if not self.reads_text:
            raise RequestError(READS_NO_TEXT, param=param)

    def check_chars(self, chars: int, param: str) -> None:
        """Refuse a text that cannot fit, however it is tokenised."""
        if chars <= self.max_model_len:
            return  # the bound needs a look at the whole vocabulary, once; most requests never ask for it
        most = self._bound()
        if most is not None and chars > self.max_model_len * most:
            least = -(-chars // most)
            said = f"your {param} of {chars} characters has at least {least} tokens"
            raise _too_long(self.max_model_len, said, param, param)

    def _bound(self) -> int | None:
        """Return the most characters that a token stands for; None where there is no bound."""
        if self._chars_per_token is not None:
            return self._chars_per_token or None
        return extras_of(self.tokenizer).max_token_chars

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

    def fit(
        self, request: GenerationRequest, prompt: TokenizedPrompt, params: SamplingParams, priority: int | None = None
    ) -> Prepared:
        """Settle how many tokens the request may get, and where the thinking is that it bounds.

        Args:
            params: The request's own, completed (`complete`), or what a plugin has made of them.
            priority: What a plugin has made of the request's own.

        Raises:
            RequestError: The prompt leaves no room for the output.
        """
        params = self._marks.bounded(params, prompt.ids)
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
        stop_ids = self.stop_ids(params)
        held = [token for token in self.tokenizer.eos_ids if token not in stop_ids] if params.min_tokens else []
        return Prepared(request, prompt, params, stop_ids, held, request.priority if priority is None else priority)

    def stop_ids(self, params: SamplingParams) -> list[int]:
        """Return the ids that end the output."""
        # A grammar says itself where the text ends, and leaves no other way on.
        eos = () if params.ignore_eos and params.grammar is None else self.tokenizer.eos_ids
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
        self.check_ids(params.logprob_token_ids or (), "logprob_token_ids")
        for ids in params.bad_token_ids:
            if not ids:
                raise RequestError("bad_token_ids must not hold an empty sequence", param="bad_token_ids")
            self.check_ids(ids, "bad_token_ids")

    def check_ids(self, ids: Sequence[Any], param: str) -> None:
        """Raises `RequestError` unless all are ids of the vocabulary."""
        check_ids(ids, self.vocab_size, param)


class unicode_checked:  # noqa: N801 - read as a verb; a class costs a third of a generator
    """Let what the tokenizer says of lone surrogates name the field.

    Args:
        param: The field.
    """

    __slots__ = ("_param",)

    def __init__(self, param: str) -> None:
        self._param = param

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UnicodeEncodeError):
            raise RequestError(f"{self._param} is not valid Unicode: {error.reason}", param=self._param) from error


def _too_long(limit: int, said: str, param: str, remedy: str) -> RequestError:
    return RequestError(
        f"This model's maximum context length is {limit} tokens. However, {said}. "
        f"Please reduce the length of the {remedy}.",
        param=param,
        code="context_length_exceeded",
    )
