"""What plugins may read of a request's sampling parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_STOPS = 16
"""Most stop texts of one request."""

MAX_LOGPROBS = 128
"""Most tokens of one place that log-probabilities are given for."""

MAX_BAD_WORDS = 128
"""Most texts that an answer must not hold."""

MAX_TOKEN_LIST = 1024
"""Most tokens of a list, such as those that end an answer."""

MAX_TOKENS = 2**31 - 1
"""Largest number of tokens, and id of one."""


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
