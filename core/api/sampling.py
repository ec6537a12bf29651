"""Sampling parameters: the table of those that core has, rows that plugins add, and what plugins may read of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, Protocol, cast

from core.api.errors import RequestError
from core.api.record import Record

MAX_STOPS = 16
"""Most stop texts of one request."""

MAX_LOGPROBS = 128
"""Most tokens of one place that log-probabilities are given for."""

MAX_BAD_WORDS = 128
"""Most texts that an answer must not hold."""

MAX_TOKEN_LIST = 1024
"""Most tokens of a list, such as those that end an answer."""

MAX_ALLOWED_TOKENS = 2**18
"""Most tokens of a list of the only ones that may be sampled."""

MAX_TOKENS = 2**31 - 1
"""Largest number of tokens, and id of one."""

MAX_N = 128
"""Most sequences of one prompt."""

_SEED = 2**63


class SamplingField(Record):
    """One sampling parameter, declared once: bodies, checks, flags, pages and the worker's rows are made of it.

    Attributes:
        name: What it is called in `core.SamplingParams` (a plugin's: in its `extra_args`), in the bodies of HTTP APIs
            and, with hyphens, as a flag. An identifier in lower case.
        type: What its values are. `number` (finite), `integer` and `boolean` are those that a plugin may declare.
            Core has `texts`, `tokens` (ids), `biases` (by token id) and `object` besides.
        meaning: What it does, in one sentence, with its unit.
        default: Holds where nobody says anything: a plugin's has no effect then. None: nothing holds.
        optional: None is a value of it beside its default, such as no limit.
        low, high: The range of a number, both included; None leaves that side open.
        above_low: `low` is no value of it itself.
        single: One text stands for a list of it.
        most: Most entries of a list or an object.
        from_model: The `generation_config.json` of a model may say it for requests that do not.
        flag: `core chat`, `core run` and `core complete` have a flag for it.
        op: Operation of core (`core.ops`) whose `numbers` it is a row of, in the order of the table. None for all that
            is a row of no operation; a plugin's is a row of `LogitsContext.numbers`.

    Raises:
        ValueError: The name is no such identifier, or the default is outside the range.
    """

    name: str
    type: Literal["number", "integer", "boolean", "texts", "tokens", "biases", "object"]
    meaning: str
    default: int | float | bool | None = None
    optional: bool = False
    low: int | float | None = None
    high: int | float | None = None
    above_low: bool = False
    single: bool = False
    most: int | None = None
    from_model: bool = False
    flag: bool = False
    op: Literal["draw", "penalize"] | None = None

    def _faults(self) -> Iterable[str]:
        if not self.name.isidentifier() or self.name != self.name.lower() or self.name.startswith("_"):
            yield f"name: {self.name!r} is no identifier in lower case"
        if self.default is not None and (fault := self.fault(self.default)):
            yield f"default: {fault}"

    @property
    def simple(self) -> bool:
        """Whether its values are single numbers or truth values, which is what rows of the worker hold."""
        return self.type in ("number", "integer", "boolean")

    def check(self, value: object) -> None:
        """Refuse a value that is not of its type, or outside its range. Raises `RequestError`, `param` is the name."""
        if fault := self.fault(value):
            raise RequestError(fault, param=self.name)

    def fault(self, value: object) -> str | None:
        """Return what is wrong with a value, whose type is `simple`; None if nothing is."""
        if value is None and (self.optional or self.default is None):
            return None
        if self.type == "boolean":
            return None if type(value) is bool else f"{self.name} must be true or false, got {value!r}"
        whole = self.type == "integer"
        right = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not right or (isinstance(value, float) and not math.isfinite(value)):
            return f"{self.name} must be {'an integer' if whole else 'a finite number'}, got {value!r}"
        low, high = -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high
        number = cast(float, value)
        if low <= number <= high and not (self.above_low and number == low):
            return None
        if whole:
            return f"{self.name} must be between {low} and {high}, got {value}"
        return f"{self.name} must be in {'(' if self.above_low else '['}{low:g}, {high:g}], got {value!r}"


def _number(name: str, low: float, high: float, default: float, meaning: str, **more: Any) -> SamplingField:
    return SamplingField(name=name, type="number", meaning=meaning, default=default, low=low, high=high, **more)


def _integer(name: str, low: int, high: int, default: int | None, meaning: str, **more: Any) -> SamplingField:
    return SamplingField(name=name, type="integer", meaning=meaning, default=default, low=low, high=high, **more)


def _boolean(name: str, default: bool, meaning: str) -> SamplingField:
    return SamplingField(name=name, type="boolean", meaning=meaning, default=default)


_DRAWN = {"op": "draw", "from_model": True, "flag": True}
_TABLE = (
    _integer("n", 1, MAX_N, 1, "Sequences to generate from the prompt."),
    _number("temperature", 0.0, 100.0, 1.0, "0 takes the most likely token.", **_DRAWN),
    _integer("top_k", -1, MAX_TOKENS, 0, "Keep the k most likely tokens; 0 or -1 keeps all.", **_DRAWN),
    _number(
        "top_p",
        0.0,
        1.0,
        1.0,
        "Keep the smallest set of tokens whose probability reaches p, in (0, 1].",
        above_low=True,
        **_DRAWN,
    ),
    _number("min_p", 0.0, 1.0, 0.0, "Drop tokens less likely than p times the most likely one, in [0, 1].", **_DRAWN),
    _number(
        "repetition_penalty",
        0.01,
        100.0,
        1.0,
        "Over prompt and output, > 0; 1 is off, and above it words that were there are less likely.",
        op="penalize",
        from_model=True,
        flag=True,
    ),
    _number(
        "frequency_penalty", -2.0, 2.0, 0.0, "Over the output, for each time that a token was there.", op="penalize"
    ),
    _number("presence_penalty", -2.0, 2.0, 0.0, "Over the output, for tokens that were there.", op="penalize"),
    SamplingField(
        name="logit_bias",
        type="biases",
        meaning="Token id -> added to its logit, in [-100, 100].",
        low=-100.0,
        high=100.0,
        most=MAX_TOKEN_LIST,
    ),
    SamplingField(
        name="allowed_token_ids",
        type="tokens",
        meaning="When given, no other token is ever sampled.",
        most=MAX_ALLOWED_TOKENS,
    ),
    SamplingField(name="bad_words", type="texts", meaning="Texts that must not appear.", most=MAX_BAD_WORDS),
    _integer(
        "min_tokens",
        0,
        MAX_TOKENS,
        0,
        "No end-of-sequence or stop token before this many, under `ignore_eos` too.",
    ),
    _integer(
        "max_tokens",
        1,
        MAX_TOKENS,
        16,
        "Longest answer, in tokens; None means up to the model's length.",
        optional=True,
        flag=True,
    ),
    SamplingField(
        name="stop",
        type="texts",
        meaning="Ends the answer, and is cut from it unless `include_stop_str_in_output`.",
        single=True,
        most=MAX_STOPS,
        flag=True,
    ),
    SamplingField(name="stop_token_ids", type="tokens", meaning="Ids that end the output.", most=MAX_TOKEN_LIST),
    _boolean("include_stop_str_in_output", False, "Leave the stop text that ended the output in it."),
    _boolean(
        "ignore_eos", False, "Go on after end-of-sequence tokens; they may be sampled once there are `min_tokens`."
    ),
    _integer(
        "seed", -_SEED, _SEED - 1, None, "Makes the answer reproducible whatever else is in the batch.", flag=True
    ),
    _integer(
        "logprobs",
        0,
        MAX_LOGPROBS,
        None,
        "Return the sampled token's log-probability and this many alternatives; None returns nothing.",
    ),
    SamplingField(
        name="logprob_token_ids",
        type="tokens",
        meaning="Return the log-probabilities of these tokens and of the sampled one, and of no others: `logprobs` "
        "becomes their number.",
        most=MAX_LOGPROBS,
    ),
    _integer("prompt_logprobs", 0, MAX_LOGPROBS, None, "Like `logprobs`, for the prompt's tokens."),
    _boolean("skip_special_tokens", True, "Leave special tokens out of the text."),
    _integer(
        "thinking_token_budget",
        0,
        MAX_TOKENS,
        None,
        "Tokens of thinking after which the thinking is ended, those that the prompt holds of a thought it opens among "
        "them; None (or -1) leaves the end to the model.",
    ),
    SamplingField(
        name="repetition_detection",
        type="object",
        meaning="Ends an output that repeats itself; a mapping stands for its fields.",
    ),
)

SAMPLING_FIELDS: Mapping[str, SamplingField] = MappingProxyType({one.name: one for one in _TABLE})
"""Every sampling parameter of core that a request may say, by name. A plugin's are in its `LogitsSpec.fields`."""


def fields_of(op: str) -> tuple[SamplingField, ...]:
    """Return the parameters that are rows of an operation's `numbers`, in their order."""
    return tuple(one for one in _TABLE if one.op == op)


FROM_MODEL = tuple(one.name for one in _TABLE if one.from_model)
"""What the `generation_config.json` of a model may say for requests that do not."""


class SamplingView(Protocol):
    """A request's sampling parameters, read only.

    Attributes:
        temperature: 0 is greedy.
        max_tokens: Most output tokens; None means up to the model's length.
        min_tokens: No end of text before this many.
        seed: Given when the request must be reproducible.
        extra_args: Arguments for plugins, by name; None when the request has none.
    """

    @property
    def temperature(self) -> float: ...

    @property
    def max_tokens(self) -> int | None: ...

    @property
    def min_tokens(self) -> int: ...

    @property
    def seed(self) -> int | None: ...

    @property
    def extra_args(self) -> Mapping[str, Any] | None: ...
