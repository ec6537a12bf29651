"""What plugins may read of a request's sampling parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_STOPS = 16
"""Most stop texts of one request."""


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
