"""Drafters guess the next tokens of a request, and the model verifies a whole guess in one step. Provisional.

A drafter runs in the worker, when a step begins. The step runs a row's last token together with the guess behind it,
chooses a token at each of these positions as it always does, and keeps the guess as far as it equals what was chosen.
So a drafter changes how fast tokens come, never which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class DrafterContext:
    """Context that a drafter is constructed with.

    Attributes:
        max_rows: Rows are numbered `0 .. max_rows - 1`.
        max_draft: Most tokens of one guess, at most the descriptor's `max_draft`.
        vocab_size: Token ids are `0 .. vocab_size - 1`.
        options: The plugin's own options.
    """

    max_rows: int
    max_draft: int
    vocab_size: int
    options: Mapping[str, Any] = field(default_factory=dict)


class Drafter(Protocol):
    """Runtime of a `DrafterSpec` that reads token ids only (n-gram, suffix). Torch-free; used by one thread.

    A row belongs to one request from `admit` to `release`; admitted again in between it starts over. Its known tokens
    stay as they are, and more come. A guess may depend on them and on what the drafter was made with, not on other
    rows, nor on requests that ended: else the speed of one client's answer would tell about the text of another's.
    """

    def __init__(self, ctx: DrafterContext) -> None: ...

    def admit(self, row: int, prompt: np.ndarray) -> None:
        """A request takes `row`, or has to be computed again.

        Args:
            prompt: `(length,)` int32, the tokens that it begins with, which lie in the token pool as well. Read only,
                and not to be kept.
        """
        ...

    def propose(self, rows: np.ndarray, known: np.ndarray, tokens: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Guess what follows `tokens[row, :known]` of each row, and return how many tokens each row got.

        Every request waits meanwhile: this should take microseconds a row, whatever the row's length. Asked twice it
        guesses the same. Between two calls for a row any number of tokens may have come, or none.

        Args:
            rows: `(n,)` int64, the rows that are asked, each once, in any order. Read only.
            known: `(n,)` int64, how many tokens of each of these rows are known, at least 1. Read only.
            tokens: `(max_rows, length)` int32, the token pool. Behind a row's known tokens lies whatever was there
                before, refused guesses among it. Read only, and not to be kept: the next call may bring another array.
            out: `(n, k)` int32 with `k <= max_draft`; the guess of `rows[i]` goes to the head of `out[i]`. What lies
                behind it is not read.

        Returns:
            `(n,)` integers from 0 (no guess) to k. A token outside the vocabulary, or an exception, costs guesses and
            no request.
        """
        ...

    def release(self, row: int) -> None:
        """The request of `row` ended: forget it."""
        ...
