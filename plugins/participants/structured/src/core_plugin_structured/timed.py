"""A matcher whose work is bounded: what following a grammar takes may grow with the text, in time and in memory."""

from __future__ import annotations

import time

import numpy as np

from core.api.structured import GrammarMatcher

FIRST_SECONDS = 0.5
"""Processor time that following a grammar may take, whatever the text."""

TOKEN_SECONDS = 0.0002
"""And beside it for each token: twice what the slowest grammar of docs/structured-output.md takes on its first walk."""


class TimedMatcher:
    """A `GrammarMatcher` that raises `RuntimeError` once another has used up its processor time.

    A parser that keeps every way to read a text of an ambiguous grammar takes more time and memory with each token. It
    runs between two steps of everybody, where nothing can interrupt it.
    """

    def __init__(self, matcher: GrammarMatcher) -> None:
        self._matcher = matcher
        self._left = FIRST_SECONDS

    def fill(self, mask: np.ndarray) -> None:
        """As the other does."""
        began = time.thread_time()
        self._matcher.fill(mask)
        self._spend(time.thread_time() - began)

    def accept(self, token: int) -> bool:
        """As the other does."""
        began = time.thread_time()
        accepted = self._matcher.accept(token)
        self._spend(time.thread_time() - began - TOKEN_SECONDS)
        return accepted

    def rollback(self, count: int) -> None:
        """As the other does."""
        self._matcher.rollback(count)

    def is_complete(self) -> bool:
        """As the other does."""
        return self._matcher.is_complete()

    def _spend(self, seconds: float) -> None:
        self._left -= seconds
        if self._left < 0:
            raise RuntimeError("following it takes too much time, more with each token; make it less ambiguous")
