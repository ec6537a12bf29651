"""Sampling parameters: the one place where the limits of the table are checked, whoever the front end is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from core.api.errors import RequestError
from core.api.grammars import Grammar as Grammar
from core.api.grammars import Thinking as Thinking
from core.api.grammars import structured_output
from core.api.repetition import RepetitionDetection as RepetitionDetection
from core.api.repetition import repetition_of
from core.api.sampling import MAX_TOKEN_LIST, MAX_TOKENS, SamplingField
from core.api.sampling_table import SAMPLING_FIELDS

MAX_STOP_CHARS = 1024
MAX_EXTRA_ARGS = 64


class SamplingParams(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """How the tokens of one request are chosen and when it stops.

    What a front end may say too is a row of `core.api.SAMPLING_FIELDS`, with its meaning, range and default; here it
    has the type that Python's users see.

    Attributes:
        bad_token_ids: Token sequences whose last token is never sampled after the others; the front end makes them of
            `bad_words`.
        detokenize: False returns token ids only.
        extra_args: Arguments for plugins, by name; plain data. What a logits processor declares as its field is one of
            them: which processors there are is the engine's to know, and these parameters are made without one.
        grammar: Constrains the output; needs a structured-output backend. A mapping stands for what
            `structured_output` makes of it: `{"json": schema}`, `{"choice": ["a", "b"]}`.
        thinking: Where the thinking is that `thinking_token_budget` is for; None: as the model's tokenizer marks it.

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
        for name, default, types, low, high, check in _NUMBERS:
            value = getattr(self, name)
            # The very object of the default, where nobody said anything; the field's own check is slower, and says why.
            if value is not default and not (type(value) in types and low <= value <= high):
                check(value)

    def _check_lists(self) -> None:
        for name, limit in _LISTS:
            given = getattr(self, name)
            if given and len(given) > limit:
                raise RequestError(f"{name} has {len(given)} entries; at most {limit}", param=name)
        for text in self.stop:
            if not isinstance(text, str) or not 0 < len(text) <= MAX_STOP_CHARS:
                raise RequestError(f"each stop text must have 1 to {MAX_STOP_CHARS} characters", param="stop")
        for word in self.bad_words:
            if not isinstance(word, str) or not word:
                raise RequestError("each bad word must be a text that is not empty", param="bad_words")
        for token in self.stop_token_ids:
            if type(token) is not int or not 0 <= token <= MAX_TOKENS:
                _TOKEN.check(token)
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
        most = SAMPLING_FIELDS["logit_bias"].most or 0
        if not isinstance(self.logit_bias, Mapping) or len(self.logit_bias) > most:
            raise RequestError(f"logit_bias must map at most {most} token ids", param="logit_bias")
        for value in self.logit_bias.values():
            _BIAS.check(value)


_Number = tuple[str, object, tuple[type, ...], float, float, Callable[[object], None]]
"""A number of the table as it is checked: its name, default, types, least and greatest value, and its own check."""


def _numbers() -> Iterator[_Number]:
    defaults = dict(zip(SamplingParams.__struct_fields__, SamplingParams.__struct_defaults__, strict=True))
    for name, one in SAMPLING_FIELDS.items():
        if one.type not in ("number", "integer"):
            continue
        low, high = -math.inf if one.low is None else one.low, math.inf if one.high is None else one.high
        types = (int,) if one.type == "integer" else (float, int)
        yield name, defaults[name], types, math.nextafter(low, high) if one.above_low else low, high, one.check


_NUMBERS = tuple(_numbers())
_LISTS = (
    *((one.name, one.most) for one in SAMPLING_FIELDS.values() if one.type in ("texts", "tokens") and one.most),
    ("bad_token_ids", MAX_TOKEN_LIST),
)
_TOKEN = SamplingField(name="stop_token_ids", type="integer", meaning="One of them.", low=0, high=MAX_TOKENS)
_BIAS = SAMPLING_FIELDS["logit_bias"].replace(type="number")
"""One of its values."""
