"""The sampling parameters of core, each declared once: bodies, checks, flags, pages and the worker's rows follow."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from core.api.sampling import (
    MAX_ALLOWED_TOKENS,
    MAX_BAD_WORDS,
    MAX_LOGPROBS,
    MAX_N,
    MAX_STOPS,
    MAX_TOKEN_LIST,
    MAX_TOKENS,
    SamplingField,
)

_SEED = 2**63


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
"""Parameters that the `generation_config.json` of a model may set for requests that do not."""
