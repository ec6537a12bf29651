"""Prompts of an answer, as route plugins see them."""

from __future__ import annotations

from core.api.serving import TokenScore as Score
from core.frontend.results import RequestOutput
from core.server.serving.scores import ScoredTokens


class ServedPrompt:
    """`core.api.serving.Prompt` over the first of its outputs, and the one that brings scores."""

    __slots__ = ("_scores", "_tokens", "output")

    def __init__(self, output: RequestOutput, tokens: ScoredTokens) -> None:
        self.output, self._tokens = output, tokens
        self._scores: list[Score | None] | None = None

    @property
    def ids(self) -> list[int]:
        """Its tokens."""
        return self.output.prompt_token_ids

    @property
    def text(self) -> str:
        """As it was given, or what its tokens say."""
        given, tokenizer = self.output.prompt, self._tokens.tokenizer
        return tokenizer.decode(self.output.prompt_ids, skip_special_tokens=False) if given is None else given

    @property
    def scores(self) -> list[Score | None]:
        """Of its tokens, as far as they were asked for and have come."""
        if self._scores is None:
            if self.output.prompt_logprobs is None:
                return []
            tokens, top = self._tokens, self._tokens.params.prompt_logprobs or 0
            scored = zip(self.output.prompt_ids, self.output.prompt_logprobs, strict=True)
            self._scores = [None if one is None else tokens.one(token, one, top) for token, one in scored]
        return self._scores
