"""Lookup of a row's last tokens in the row itself."""

from __future__ import annotations

import numpy as np

from core.api import DrafterContext
from core_plugin_ngram.index import RowIndex
from core_plugin_ngram.options import NGramOptions


class NGramDrafter:
    """Guesses what followed the last occurrence of a row's last tokens."""

    def __init__(self, ctx: DrafterContext) -> None:
        self._lengths = NGramOptions.model_validate(dict(ctx.options)).lengths()
        self._rows: dict[int, RowIndex] = {}
        self._ahead = np.arange(ctx.max_draft)

    def admit(self, row: int, prompt: np.ndarray) -> None:
        """A request takes `row`. Nothing is read yet: a row for which nobody asks costs nothing."""
        self._rows[row] = RowIndex(self._lengths)

    def propose(self, rows: np.ndarray, known: np.ndarray, tokens: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Guess behind `tokens[row, :known]` into `out (n, k)`; return how many tokens each row got, `(n,)`."""
        ahead = self._ahead[: out.shape[1]]
        counts = np.zeros(len(rows), np.int64)
        for place, (row, end) in enumerate(zip(rows.tolist(), known.tolist())):
            line = tokens[row]
            before = self._rows[row].find(line, end)
            if before is not None:
                # A text that repeats itself every `end - before` tokens goes on doing so, where the guess is longer.
                out[place] = line[before + ahead % (end - before)]
                counts[place] = len(ahead)
        return counts

    def release(self, row: int) -> None:
        """The request of `row` ended."""
        del self._rows[row]
