"""Delimiters of a template's fields: literals or patterns, found in a text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import regex

MOST = 512
"""Characters of a delimiter; a pattern that would match more does not match there."""

_WINDOW = 4 * MOST

_SECONDS = 0.2
"""A pattern that takes longer goes out of its mind over this text."""


class Hit(NamedTuple):
    """Where a delimiter stands, or may stand once more text is known.

    Attributes:
        certain: It does not depend on what follows.
        groups: Named groups.
    """

    start: int
    end: int
    certain: bool
    groups: Mapping[str, str]


@dataclass(frozen=True)
class Anchor:
    """A delimiter.

    Attributes:
        pattern: What is searched for.
        fixed: A whole match stays what it is, whatever follows.
        literals: The texts that it is any of, if it is no other pattern.
    """

    pattern: regex.Pattern[str]
    fixed: bool
    literals: tuple[str, ...] = ()

    @staticmethod
    def of_literals(literals: Sequence[str]) -> Anchor:
        """Return the delimiter that any of some texts is, the longest first."""
        ordered = sorted(set(literals), key=lambda text: (-len(text), text))
        fixed = not any(one != other and one.startswith(other) for one in ordered for other in ordered)
        return Anchor(regex.compile("|".join(map(regex.escape, ordered))), fixed, tuple(literals))

    @staticmethod
    def of_pattern(source: str) -> Anchor:
        """Return the delimiter that a pattern describes. Raises `regex.error`."""
        return Anchor(regex.compile(source, regex.DOTALL), fixed=False)

    def find(self, data: str, start: int, *, final: bool) -> Hit | None:
        """Return the first match from `start`, or the first place where one may be in the making.

        Raises:
            TimeoutError: The pattern takes too long.
        """
        at = start
        while True:
            # Whatever the pattern, each search sees so many characters: the work stays linear in the text.
            end = min(len(data), at + _WINDOW)
            inside = end < len(data)
            found = self.pattern.search(data, at, end, partial=inside or not final, timeout=_SECONDS)
            if found is None:
                if not inside:
                    return None
                at = end
            elif inside and found.start() > end - MOST - 1 > at:
                at = end - MOST - 1  # an earlier one may reach across the end of what was seen
            else:
                hit = self._at(data, found.start(), final=final)
                if hit is not None:
                    return hit
                at = found.start() + 1

    def _at(self, data: str, start: int, *, final: bool) -> Hit | None:
        """Return the match at `start`, unless it is too long for a delimiter."""
        end = min(len(data), start + MOST + 1)
        open_ended = end == len(data) and not final
        found = self.pattern.match(data, start, end, partial=open_ended, timeout=_SECONDS)
        if found is None or found.end() - start > MOST:
            return None
        groups = {name: text for name, text in found.groupdict().items() if text is not None}
        return Hit(start, found.end(), final or self._certain(found, data), groups)

    def last(self, data: str) -> int | None:
        """Return where the last match ends."""
        ends = [found.end() for found in self.pattern.finditer(data)]
        return ends[-1] if ends else None

    def _certain(self, found: regex.Match[str], data: str) -> bool:
        if found.partial:
            return False
        at_edge = found.end() == len(data)
        return not at_edge or (self.fixed and found.end() > found.start())
