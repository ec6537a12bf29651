"""Detection of an output that repeats itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from core.api.errors import RequestError

MAX_PATTERN = 4096
MAX_COUNT = 2**20

_PARAM = "repetition_detection"


class RepetitionDetection(msgspec.Struct, frozen=True, omit_defaults=True):
    """End an output whose last tokens are the same pattern again and again.

    Attributes:
        max_pattern_size: Tokens of the longest pattern that is looked for; 0 looks for none.
        min_pattern_size: Tokens of the shortest; 0 means 1.
        min_count: How often the pattern must stand there in a row, at least 2.

    Raises:
        RequestError: A number is outside its range, or they contradict each other.
    """

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0

    def __post_init__(self) -> None:
        for name, limit in (
            ("max_pattern_size", MAX_PATTERN),
            ("min_pattern_size", MAX_PATTERN),
            ("min_count", MAX_COUNT),
        ):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= limit:
                raise _refusal(f"{name} must be an integer from 0 to {limit}, got {value!r}")
        if self.min_pattern_size > self.max_pattern_size:
            sizes = f"{self.min_pattern_size} is greater than {self.max_pattern_size}"
            raise _refusal(f"min_pattern_size must not be greater than max_pattern_size: {sizes}")
        if self.max_pattern_size and self.min_count < 2:
            raise _refusal("min_count must be at least 2")

    @property
    def sizes(self) -> range:
        """Lengths of pattern to look for."""
        return range(max(1, self.min_pattern_size), self.max_pattern_size + 1)


def repetition_of(given: Any) -> RepetitionDetection | None:
    """Return what a mapping or object asks for; None if it looks for nothing. Raises `RequestError`."""
    if isinstance(given, Mapping):
        unknown = sorted(map(str, set(given) - set(RepetitionDetection.__struct_fields__)))
        if unknown:
            raise _refusal(f"it has no field '{unknown[0]:.40}'")
        given = RepetitionDetection(**{name: value for name, value in given.items() if value is not None})
    if not isinstance(given, RepetitionDetection | None):
        raise _refusal("it must be an object with max_pattern_size, min_pattern_size and min_count")
    return given if given is not None and given.max_pattern_size else None


def _refusal(said: str) -> RequestError:
    return RequestError(f"{_PARAM}: {said}", param=_PARAM)
