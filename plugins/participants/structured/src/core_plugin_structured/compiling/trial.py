"""A compiled grammar is tried before a request runs with it."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from core.api.kinds import Contract, Fit
from core.api.structured import CompiledGrammar, GrammarMatcher

WORD = 32
"""Tokens per element of a mask."""

COMPILED_GRAMMAR = Contract("core.api.structured:CompiledGrammar")
GRAMMAR_MATCHER = Contract("core.api.structured:GrammarMatcher")


class Backend(Protocol):
    """Knows a backend, and which of its objects fit: a `core.api.Chosen`."""

    @property
    def fit(self) -> Fit: ...


def begin(compiled: CompiledGrammar, vocab_size: int, backend: Backend) -> None:
    """Write one token, so that limits which any text would meet are met: a request that cannot succeed does not run.

    Args:
        backend: Whose grammar it is.

    Raises:
        ValueError: The library cannot follow the grammar, or no text fits it.
        PluginError: CORE-P160, the grammar or its matcher is not what the engine calls.
    """
    backend.fit("compile() or load()", compiled, COMPILED_GRAMMAR)
    try:
        matcher = backend.fit("matcher()", compiled.matcher(), GRAMMAR_MATCHER)
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
