"""Sampling parameters: how one is declared, and what plugins may read of a request's. Core's: `sampling_table`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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

    @property
    def values(self) -> str:
        """Its type, and the range of a number, in words: `number from 0 to 1`."""
        low = "" if self.low is None else f" {'above' if self.above_low else 'from'} {_short(self.low)}"
        return f"{self.type}{low}{'' if self.high is None else f' to {_short(self.high)}'}"

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON Schema, of which types that are not `simple` have the description alone."""
        told: dict[str, Any] = {"description": self.meaning}
        if not self.simple:
            return told
        least = "exclusiveMinimum" if self.above_low else "minimum"
        bounds = {"type": self.type, least: self.low, "maximum": self.high, "default": self.default}
        return told | {name: value for name, value in bounds.items() if value is not None}

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


def _short(number: float) -> str:
    return f"{number:g}" if isinstance(number, float) else str(number)


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
