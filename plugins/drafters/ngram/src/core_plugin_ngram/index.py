"""Where the n-grams of one row occurred last."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class RowIndex:
    """Remembers for each n-gram of a row where it ended last, and grows with the row.

    It takes about 300 bytes a token where most n-grams are new; a token's keys and values take many times as much.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        # The bytes of an n-gram are its key: equal only for equal tokens, and hashed without a loop in Python.
        self._ends: list[tuple[int, dict[bytes, int]]] = [(length, {}) for length in lengths]
        self._longest = lengths[0]
        self._known = 0

    def find(self, tokens: np.ndarray, known: int) -> int | None:
        """Return where the longest of the last n-grams of `tokens[:known]` ended before; None if none occurred before.

        Args:
            tokens: `(length,)`, the row; nothing behind its `known` tokens is read.
            known: At least as many as in the call before.
        """
        size = tokens.itemsize
        # What is new, and before it the tokens of the n-grams that end there.
        start = max(self._known - self._longest, 0)
        raw = tokens[start:known].tobytes()
        found = None
        for length, ends in self._ends:
            # The n-gram that ends with the last token is noted by the next call, when something has followed it.
            first, width = max(self._known, length), length * size
            offsets = range((first - length - start) * size, (known - length - start) * size, size)
            ends.update(zip([raw[offset : offset + width] for offset in offsets], range(first, known)))
            if found is None:
                found = ends.get(raw[-width:])
        self._known = known
        return found
