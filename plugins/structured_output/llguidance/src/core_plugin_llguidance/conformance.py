"""Grammars for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import EBNF, LARK, GrammarSample


def samples() -> Iterator[GrammarSample]:
    """Yield a grammar in both dialects."""
    yield from (EBNF, LARK)
