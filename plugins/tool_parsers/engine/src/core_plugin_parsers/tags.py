"""Literals in a text that arrives in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable

SPACE = " \t\r\n"
UNDECIDED = ""
"""Result of `literal_at` where the text ends too early to tell."""

TOOL_NAME = re.compile(r"[^\s<>\"'{}()]+")
"""Pattern of a tool's name; where other characters stand, a tag was only mentioned."""

_SPACES = re.compile(f"[{SPACE}]*")


def skip_space(data: str, start: int) -> int:
    """Return where the white space at `start` ends."""
    return _SPACES.match(data, start).end()  # type: ignore[union-attr]


def literal_at(data: str, start: int, literals: Iterable[str]) -> str | None:
    """Return the literal that stands at `start`, `UNDECIDED` if one may, None if none does."""
    undecided = None
    for literal in literals:
        if data.startswith(literal, start):
            return literal
        if len(data) - start < len(literal) and literal.startswith(data[start:]):
            undecided = UNDECIDED
    return undecided


class Finder:
    """Finds the first of several literals, of which none is the beginning of another.

    Raises:
        ValueError: One is.
    """

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = tuple(dict.fromkeys(literals))
        for literal in self.literals:
            other = [one for one in self.literals if one != literal and one.startswith(literal)]
            if other or not literal:
                raise ValueError(f"the tag {literal!r} is the beginning of {other}: which of them stands in a text?")
        self._pattern = re.compile("|".join(map(re.escape, self.literals)) or r"(?!)")
        self._longest = max(map(len, self.literals), default=1)
        self._heads = frozenset(literal[0] for literal in self.literals)

    def find(self, data: str, start: int, most: int | None = None) -> tuple[int, str]:
        """Return where the first literal stands and which one it is.

        Without one: where the text ends that is certainly none of them, and `UNDECIDED`.

        Args:
            most: A literal that begins farther away is of no use; the place that is returned is too far, too, then.
        """
        stop = len(data) if most is None else min(len(data), start + most + self._longest)
        found = self._pattern.search(data, start, stop)
        if found:
            return found.start(), found[0]
        return (stop if stop < len(data) else self._certain(data, start)), UNDECIDED

    def _certain(self, data: str, start: int) -> int:
        for at in range(max(start, len(data) - self._longest + 1), len(data)):
            if data[at] in self._heads and any(literal.startswith(data[at:]) for literal in self.literals):
                return at
        return len(data)
