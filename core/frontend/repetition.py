"""Finds out, token by token, that an output has begun to repeat itself."""

from __future__ import annotations

import numpy as np

from core.api.repetition import RepetitionDetection

REASON = "repetition"
"""Finish reason of a sequence that was ended for it."""

DETECTED = "repetition_detected"
"""Its stop reason."""


class RepetitionScanner:
    """Looks for patterns of all sizes at once: work per token is one pass over the sizes, whatever came before.

    The last tokens are a pattern of size s, c times, exactly if each of the last `s * (c - 1)` tokens equals the one s
    places before it. So a counter per size is enough.
    """

    def __init__(self, wanted: RepetitionDetection) -> None:
        sizes = np.array(wanted.sizes, np.int64)
        self._longest = int(sizes[-1])
        self._back = self._longest - sizes  # places in the window, which holds the last tokens, oldest first
        self._needed = sizes * (wanted.min_count - 1)
        self._equal = np.zeros(len(sizes), np.int64)
        self._buffer = np.full(2 * self._longest, -1, np.int64)
        self._at = 0

    def push(self, token: int) -> bool:
        """Take in a token; whether the tokens so far end in a repetition."""
        window = self._buffer[self._at : self._at + self._longest]
        self._equal += 1
        self._equal *= window[self._back] == token
        end = self._at + self._longest
        if end == len(self._buffer):
            # Twice the window: it slides, and is moved back once per length, not once per token.
            self._buffer[: self._longest] = self._buffer[self._longest :].copy()
            self._at, end = 0, self._longest
        self._buffer[end] = token
        self._at += 1
        return bool((self._equal >= self._needed).any())
