"""Sampling parameters: the one place where their limits are checked, whoever the front end is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from core.api.errors import RequestError
from core.api.sampling import MAX_BAD_WORDS, MAX_LOGPROBS, MAX_STOPS, MAX_TOKEN_LIST, MAX_TOKENS
from core.engine.participants.grammars import Grammar as Grammar
from core.engine.participants.grammars import Thinking as Thinking
from core.engine.participants.grammars import structured_output
from core.engine.repetition import RepetitionDetection as RepetitionDetection
from core.engine.repetition import repetition_of

MAX_N = 128
MAX_STOP_CHARS = 1024
MAX_EXTRA_ARGS = 64


class SamplingParams(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """How the tokens of one request are chosen and when it stops.

    Attributes:
        n: Sequences to generate from the prompt.
        temperature: 0 is greedy.
        top_k: Keep the k most likely tokens; 0 or -1 keeps all.
        top_p: Keep the smallest set of tokens whose probability reaches p, in (0, 1].
        min_p: Drop tokens less likely than `min_p` times the most likely one, in [0, 1].
        repetition_penalty: Over prompt and output, > 0; 1 is off.
        presence_penalty, frequency_penalty: Over the output, in [-2, 2].
        logit_bias: Token id -> added to its logit, in [-100, 100].
        allowed_token_ids: When given, no other token is ever sampled.
        bad_words: Texts that must not appear; the front end turns them into `bad_token_ids`.
        bad_token_ids: Token sequences whose last token is never sampled after the others.
        min_tokens: No end-of-sequence or stop token before this many, under `ignore_eos` too.
        max_tokens: At most this many; None means up to the model's length.
        stop: Texts that end the output (and are cut from it unless `include_stop_str_in_output`).
        include_stop_str_in_output: Leave the stop text that ended the output in it.
        stop_token_ids: Ids that end the output.
        ignore_eos: Go on after end-of-sequence tokens; they may be sampled once there are `min_tokens`.
        seed: Makes the row reproducible whatever else is in the batch.
        logprobs: Return the sampled token's log-probability and this many alternatives; None returns nothing.
        logprob_token_ids: Return the log-probabilities of these tokens and of the sampled one, and of no others:
            `logprobs` becomes their number.
        prompt_logprobs: Like `logprobs`, for the prompt's tokens.
        skip_special_tokens: Leave special tokens out of the text.
        detokenize: False returns token ids only.
        extra_args: Arguments for plugins (logits processors), by name; plain data.
        grammar: Constrains the output; needs a structured-output backend. A mapping stands for what
            `structured_output` makes of it: `{"json": schema}`, `{"choice": ["a", "b"]}`.
        thinking_token_budget: Tokens of thinking after which the thinking is ended, those that the prompt holds of a
            thought it opens among them; None (or -1) leaves the end to the model.
        thinking: Where the thinking is that the budget is for; None: as the model's tokenizer marks it.
        repetition_detection: Ends an output that repeats itself; a mapping stands for its fields.

    Raises:
        RequestError: A value is outside its range; `param` names the field.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = []
    bad_token_ids: list[list[int]] = []
    min_tokens: int = 0
    max_tokens: int | None = 16
    stop: list[str] = []
    stop_token_ids: list[int] = []
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    detokenize: bool = True
    extra_args: dict[str, Any] | None = None
    grammar: Grammar | None = None
    thinking_token_budget: int | None = None
    thinking: Thinking | None = None
    repetition_detection: RepetitionDetection | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):  # vLLM's and OpenAI's users pass a bare string
            msgspec.structs.force_setattr(self, "stop", [self.stop])
        if isinstance(self.grammar, Mapping):
            msgspec.structs.force_setattr(self, "grammar", structured_output(self.grammar, param="grammar"))
        if self.thinking_token_budget == -1:
            msgspec.structs.force_setattr(self, "thinking_token_budget", None)
        if self.repetition_detection is not None:
            msgspec.structs.force_setattr(self, "repetition_detection", repetition_of(self.repetition_detection))
        self._check_numbers()
        self._check_lists()
        if self.logprob_token_ids:
            msgspec.structs.force_setattr(self, "logprobs", len(self.logprob_token_ids))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens ({self.min_tokens}) is greater than max_tokens ({self.max_tokens})", param="min_tokens"
            )

    @property
    def greedy(self) -> bool:
        """True when the most likely token is always taken."""
        return self.temperature == 0.0

    def replace(self, **changes: object) -> SamplingParams:
        """Return a copy with `changes`, checked again."""
        return msgspec.structs.replace(self, **changes)

    def _check_numbers(self) -> None:
        _integer("n", self.n, 1, MAX_N)
        _real("temperature", self.temperature, 0.0, 100.0)
        _integer("top_k", self.top_k, -1, MAX_TOKENS)
        _real("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _real("min_p", self.min_p, 0.0, 1.0)
        _real("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        _real("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _real("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _integer("min_tokens", self.min_tokens, 0, MAX_TOKENS)
        _integer("max_tokens", self.max_tokens, 1, MAX_TOKENS)
        _integer("seed", self.seed, -(2**63), 2**63 - 1)
        _integer("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        _integer("prompt_logprobs", self.prompt_logprobs, 0, MAX_LOGPROBS)
        _integer("thinking_token_budget", self.thinking_token_budget, 0, MAX_TOKENS)

    def _check_lists(self) -> None:
        for name, limit in (
            ("stop", MAX_STOPS),
            ("stop_token_ids", MAX_TOKEN_LIST),
            ("bad_words", MAX_BAD_WORDS),
            ("bad_token_ids", MAX_TOKEN_LIST),
            ("logprob_token_ids", MAX_LOGPROBS),
        ):
            if len(getattr(self, name) or ()) > limit:
                raise RequestError(f"{name} has {len(getattr(self, name))} entries; at most {limit}", param=name)
        for text in self.stop:
            if not isinstance(text, str) or not 0 < len(text) <= MAX_STOP_CHARS:
                raise RequestError(f"each stop text must have 1 to {MAX_STOP_CHARS} characters", param="stop")
        for word in self.bad_words:
            if not isinstance(word, str) or not word:
                raise RequestError("each bad word must be a text that is not empty", param="bad_words")
        for token in self.stop_token_ids:
            _integer("stop_token_ids", token, 0, MAX_TOKENS)
        self._check_bias()
        self._check_extra()
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise RequestError("allowed_token_ids must not be empty", param="allowed_token_ids")

    def _check_extra(self) -> None:
        extra = self.extra_args
        if extra is None:
            return
        if not isinstance(extra, Mapping) or len(extra) > MAX_EXTRA_ARGS or not all(type(key) is str for key in extra):
            raise RequestError(f"extra_args must map at most {MAX_EXTRA_ARGS} names to values", param="extra_args")

    def _check_bias(self) -> None:
        if self.logit_bias is None:
            return
        if not isinstance(self.logit_bias, Mapping) or len(self.logit_bias) > MAX_TOKEN_LIST:
            raise RequestError(f"logit_bias must map at most {MAX_TOKEN_LIST} token ids", param="logit_bias")
        for value in self.logit_bias.values():
            _real("logit_bias", value, -100.0, 100.0)


def _integer(name: str, value: object, low: int, high: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"{name} must be an integer, got {value!r}", param=name)
    if not low <= value <= high:
        raise RequestError(f"{name} must be between {low} and {high}, got {value}", param=name)


def _real(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise RequestError(f"{name} must be a finite number, got {value!r}", param=name)
    if not low <= value <= high or (open_low and value == low):
        bracket = "(" if open_low else "["
        raise RequestError(f"{name} must be in {bracket}{low:g}, {high:g}], got {value!r}", param=name)
