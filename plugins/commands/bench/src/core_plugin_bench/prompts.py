"""Random prompts. Pure; numpy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_FIRST_TOKEN = 256
"""Ids below are special tokens or single bytes in most vocabularies."""

_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", dtype="S1").astype(str)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request.

    Attributes:
        token_ids: Its prompt; empty where only the text is known.
        output_len: Tokens to generate.
        text: Its prompt as text; None sends the ids.
        length: Tokens of the text, where they were counted.
    """

    token_ids: list[int]
    output_len: int
    text: str | None = None
    length: int = 0

    @property
    def input_len(self) -> int:
        """Tokens of the prompt, 0 if nobody counted them (the server then says it)."""
        return self.length or len(self.token_ids)


@dataclass(frozen=True, slots=True)
class RandomPrompts:
    """Prompts of random tokens.

    Attributes:
        prefix_len: Tokens that all prompts share, before the `input_len` of their own.
        range_ratio: Lengths vary evenly within this fraction of their mean, in [0, 1).
        vocab_size: Ids are below this.
    """

    input_len: int
    output_len: int
    prefix_len: int = 0
    range_ratio: float = 0.0
    vocab_size: int = 32000

    def make(self, count: int, rng: np.random.Generator) -> list[Prompt]:
        """Return `count` prompts."""
        prefix = self._ids(self.prefix_len, rng)
        inputs, outputs = self._lengths(self.input_len, count, rng), self._lengths(self.output_len, count, rng)
        return [Prompt(prefix + self._ids(length, rng), output) for length, output in zip(inputs, outputs)]

    def _ids(self, length: int, rng: np.random.Generator) -> list[int]:
        first = min(_FIRST_TOKEN, self.vocab_size - 1)
        return [int(token) for token in rng.integers(first, self.vocab_size, length)]

    def _lengths(self, mean: int, count: int, rng: np.random.Generator) -> list[int]:
        low, high = max(1, round(mean * (1 - self.range_ratio))), max(1, round(mean * (1 + self.range_ratio)))
        return [int(length) for length in rng.integers(low, high + 1, count)]


def as_text(token_ids: list[int]) -> str:
    """Return as many short pseudo-words as there are ids, the same for the same ids: prompts for chat end points."""
    words = []
    for token in token_ids:
        letters = [_LETTERS[(token >> shift) % 26] for shift in (0, 4, 8)]
        words.append("".join(letters))
    return " ".join(words)
