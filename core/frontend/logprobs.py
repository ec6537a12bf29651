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

    def read(self, position: Logprobs, *, texts: bool, ranked: bool = True) -> dict[int, Logprob]:
        """Return token id -> log-probability: the chosen token, then the best alternatives, or those asked for by id.

        Args:
            ranked: They are the best alternatives, best first; the ranks of tokens asked for by id are not known.
        """
        chosen = position.ids[0]
        found = {chosen: Logprob(position.values[0], position.rank, self._text(chosen) if texts else None)}
        for rank, (token, value) in enumerate(zip(position.ids[1:], position.values[1:]), start=1):
            if token not in found:
                found[token] = Logprob(value, rank if ranked else None, self._text(token) if texts else None)
        return found
