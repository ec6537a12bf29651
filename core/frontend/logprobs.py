"""Log-probabilities as users read them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from core.api.tokenizer import Tokenizer
from core.engine.messages import Logprobs
from core.frontend.results import Logprob

_CACHED_TOKENS = 16384


class LogprobReader:
    """Gives positions their tokens' texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._text: Callable[[int], str] = lru_cache(_CACHED_TOKENS)(tokenizer.token)

    def read(self, position: Logprobs, *, texts: bool, best: int | None = None) -> dict[int, Logprob]:
        """Return token id -> log-probability: the chosen token, the best alternatives, then those that were asked for.

        Args:
            best: How many are best alternatives; the rank of what follows is not known. None: all are.
        """
        chosen = position.ids[0]
        found = {chosen: Logprob(position.values[0], position.rank, self._text(chosen) if texts else None)}
        for rank, (token, value) in enumerate(zip(position.ids[1:], position.values[1:]), start=1):
            if token not in found:
                known = best is None or rank <= best
                found[token] = Logprob(value, rank if known else None, self._text(token) if texts else None)
        return found
