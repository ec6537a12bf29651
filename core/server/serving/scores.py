"""Log-probabilities of one generation's tokens, as routes see them."""

from __future__ import annotations

from collections.abc import Sequence

from core.api.sampling_params import SamplingParams
from core.api.serving import TokenScore
from core.api.tokenizer import Tokenizer, token_bytes
from core.frontend.results import CompletionOutput, Logprob

LOWEST = -9999.0
"""Stands for minus infinity, which JSON does not have."""

Position = dict[int, Logprob]


class ScoredTokens:
    """Shows tokens by their own texts, and by the bytes that they add to the answer's."""

    def __init__(self, params: SamplingParams, tokenizer: Tokenizer) -> None:
        self.params, self.tokenizer = params, tokenizer
        self._left_out = tokenizer.special_ids if params.skip_special_tokens else frozenset()

    def of(self, sequence: CompletionOutput) -> list[TokenScore]:
        """Return those of what is new of a sequence, whose last tokens may have none."""
        top = self.params.logprobs or 0
        return [self.one(token, found, top) for token, found in zip(sequence.token_ids, sequence.logprobs or ())]

    def one(self, token: int, position: Position, top: int) -> TokenScore:
        """Return a token's, with the `top` most likely in its place, and those that were asked for behind them."""
        return self._score(token, position[token], [self._score(*best) for best in _likeliest(position, top)])

    def _score(self, token: int, entry: Logprob, top: Sequence[TokenScore] = ()) -> TokenScore:
        text = self.tokenizer.token(token) if entry.decoded_token is None else entry.decoded_token
        own = [] if token in self._left_out else list(token_bytes(self.tokenizer, token) or b"")
        return TokenScore(token, text, own, max(entry.logprob, LOWEST), entry.rank, top)


def _likeliest(position: Position, top: int) -> list[tuple[int, Logprob]]:
    ranked = sorted((item for item in position.items() if item[1].rank is not None), key=_likelihood)
    return ranked[:top] + [item for item in position.items() if item[1].rank is None]


def _likelihood(item: tuple[int, Logprob]) -> float:
    return -item[1].logprob
