"""The moderator."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_WORD = re.compile(r"\w+")


class Words:
    """Objects to a text that has one of its words."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._words = frozenset(word.lower() for word in options["words"])

    def look(self, text: str) -> Mapping[str, float]:
        """Return 1 for a text with such a word."""
        found = not self._words.isdisjoint(_WORD.findall(text.lower()))
        return {"word-list": float(found)}

    def explain(self, category: str) -> str:
        """Return what clients are told."""
        return "it has a word that is not allowed here"
