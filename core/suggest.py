"""Guessing what was meant by a word that is not known, and naming what is known without listing all of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

FEW = 8
"""Names that one sentence of an error may list."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "Did you mean '...'?" for the one of `known` that is closest to `word`, or an empty text."""
    close = closest(word, known, 1)
    return f"Did you mean '{close[0]}'?" if close else ""


def closest(word: str, known: Iterable[str], most: int) -> list[str]:
    """Return at most `most` of `known` that resemble `word`, the closest first."""
    from difflib import get_close_matches

    return get_close_matches(word, list(known), n=most)


def shortened(names: Collection[str], most: int = FEW) -> str:
    """Return names in one line; of more than `most` the first ones, and how many there are besides."""
    if len(names) <= most:
        return ", ".join(names)
    first = list(names)[: most - 1]
    return f"{', '.join(first)} and {len(names) - len(first)} more"
