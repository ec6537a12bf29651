"""A compiled grammar is tried before a request runs with it."""

from __future__ import annotations

import numpy as np

from core.api.structured import CompiledGrammar, GrammarMatcher
from core.plugins.handed import COMPILED_GRAMMAR, GRAMMAR_MATCHER, Handed

WORD = 32
"""Tokens per element of a mask."""


def begin(compiled: CompiledGrammar, vocab_size: int, handed: Handed) -> None:
    """Write one token, so that limits which any text would meet are met: a request that cannot succeed does not run.

    Args:
        handed: Knows the backend, and which of its objects fit.

    Raises:
        ValueError: The library cannot follow the grammar, or no text fits it.
        PluginError: CORE-P160, the grammar or its matcher is not what the engine calls.
    """
    handed.fit("compile() or load()", compiled, COMPILED_GRAMMAR)
    try:
        matcher = handed.fit("matcher()", compiled.matcher(), GRAMMAR_MATCHER)
        _write(matcher, np.zeros(-(-vocab_size // WORD), np.int32))
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def _write(matcher: GrammarMatcher, mask: np.ndarray) -> None:
    matcher.fill(mask)
    if not mask.any():
        raise ValueError("no text fits it")
    word = int(np.flatnonzero(mask)[0])
    bits = int(mask[word])
    if matcher.accept(word * WORD + (bits & -bits).bit_length() - 1):
        mask[:] = 0
        matcher.fill(mask)
