"""Text of a request that reads like a special token stays text.

A chat template puts its own special tokens and the texts of a request into one string, in which a tokenizer cannot tell
one from the other. Every spelling of a special token in the texts therefore gets a mark behind its first character
before the template sees it; the rendered string is cut at the marks, and its pieces are tokenised one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MARK = "\ufdd1"
"""A noncharacter: Unicode keeps it for use inside programs."""

_UNKNOWN = "\ufffd"


class PlainText:
    """Marks spellings of special tokens.

    Args:
        special: Texts of the tokenizer's special tokens.
    """

    def __init__(self, special: Iterable[str]) -> None:
        texts = {text for text in special if text}
        longer = sorted((text for text in texts if len(text) > 1), key=len, reverse=True)
        # Most texts hold no character that a special token begins with, and are done with one look.
        self._hint = re.compile(_any({MARK, *(text[0] for text in texts)})).search
        firsts = {text[0] for text in longer}
        starts = (re.escape(first) + f"(?={_any(text[1:] for text in longer if text[0] == first)})" for first in firsts)
        self._starts = re.compile("|".join(starts) or r"(?!)")
        self._beginnings = tuple({text[:end] for text in longer for end in range(1, len(text))})
        # Nothing fits between the halves of a single character.
        self._single = re.compile(_any([MARK, *(text for text in texts if len(text) == 1)]))

    def mark(self, text: str) -> str:
        """Return a text of the request as the template may see it."""
        if self._hint(text) is None:
            return text
        text = self._single.sub(_UNKNOWN, text)
        if text.endswith(self._beginnings):
            text += MARK  # what the template writes next must not complete a special token
        return self._starts.sub(rf"\g<0>{MARK}", text)


def pieces(rendered: str) -> list[str]:
    """Return a rendered text cut at its marks."""
    return [piece for piece in rendered.split(MARK) if piece] or [""]


def _any(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, texts)) or r"(?!)"
