"""Guessing what was meant by a word that is not known."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "Did you mean '...'?" for the one of `known` that is closest to `word`, or an empty text."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), n=1)
    return f"Did you mean '{close[0]}'?" if close else ""
