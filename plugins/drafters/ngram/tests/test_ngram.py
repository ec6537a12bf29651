"""The n-gram drafter beside a search through the whole text, over random texts that are asked in random pieces."""

from __future__ import annotations

import random

import numpy as np
import pytest
from core_plugin_ngram.drafter import NGramDrafter
from core_plugin_ngram.options import NGramOptions
from pydantic import ValidationError

from core.api import DrafterContext

LENGTH, ROWS, MOST = 256, 4, 6
LENGTHS = [(1, 1), (3, 3), (8, 2), (4, 1), (7, 2)]


def searched(text: list[int], lengths: list[int], width: int) -> list[int]:
    """The guess by its definition: what followed the last earlier occurrence of the longest n-gram."""
    for length in lengths:
        for end in range(len(text) - 1, length - 1, -1):
            if text[end - length : end] == text[len(text) - length :]:
                grown = list(text)
                for place in range(width):
                    grown.append(grown[end + place])
                return grown[len(text) :]
    return []


class Text:
    """A drafter with a token pool whose unknown places hold random tokens, known ones among them."""

    def __init__(self, longest: int = 8, shortest: int = 2, seed: int = 0) -> None:
        options = {"longest": longest, "shortest": shortest}
        self.drafter = NGramDrafter(DrafterContext(ROWS, MOST, 50_000, options))
        self.pool = np.random.default_rng(seed).integers(0, 4, (ROWS, LENGTH), np.int32)
        self.known = np.zeros(ROWS, np.int64)

    def admit(self, row: int, tokens: list[int]) -> None:
        self.known[row] = 0
        self.say(row, tokens)
        self.drafter.admit(row, self.pool[row, : len(tokens)].copy())

    def say(self, row: int, tokens: list[int]) -> None:
        self.pool[row, self.known[row] : self.known[row] + len(tokens)] = tokens
        self.known[row] += len(tokens)

    def text(self, row: int) -> list[int]:
        return self.pool[row, : self.known[row]].tolist()

    def guess(self, *rows: int, width: int = MOST) -> list[list[int]]:
        out = np.full((len(rows), width), -1, np.int32)
        index = np.array(rows)
        counts = self.drafter.propose(index, self.known[index], self.pool, out)
        return [line[:count].tolist() for line, count in zip(out, counts)]


def some(rng: random.Random, count: int) -> list[int]:
    return [rng.choice((0, 1, 2, 40_000)) for _ in range(count)]


@pytest.mark.parametrize(("longest", "shortest"), LENGTHS)
@pytest.mark.parametrize("seed", range(8))
def test_it_finds_what_a_search_through_the_text_finds(longest, shortest, seed):
    rng, one = random.Random(seed), Text(longest, shortest, seed)
    lengths = NGramOptions(longest=longest, shortest=shortest).lengths()
    for row in range(ROWS):
        one.admit(row, some(rng, rng.randint(1, 40)))
    for _ in range(60):
        rows = rng.sample(range(ROWS), rng.randint(1, ROWS))
        width = rng.randint(1, MOST)
        assert one.guess(*rows, width=width) == [searched(one.text(row), lengths, width) for row in rows]
        for row in rows:
            one.say(row, some(rng, rng.randint(1, 3)))
        if rng.random() < 0.1:  # the request ends, or is computed again
            row = rng.randrange(ROWS)
            if rng.random() < 0.5:
                one.drafter.release(row)
            one.admit(row, some(rng, rng.randint(1, 40)))


@pytest.mark.parametrize("seed", range(4))
def test_an_index_that_grew_is_one_made_at_once(seed):
    rng, grown, fresh = random.Random(seed), Text(seed=seed), Text(seed=seed + 1)
    grown.admit(0, some(rng, 30))
    for _ in range(50):
        grown.say(0, some(rng, rng.randint(1, 4)))
        fresh.admit(0, grown.text(0))
        assert grown.guess(0) == fresh.guess(0)


def test_refused_guesses_behind_the_known_tokens_are_not_read():
    one = Text(shortest=1)
    one.admit(0, [1, 2, 3, 1])
    one.pool[0, 4:8] = [9, 1, 7, 7]
    assert one.guess(0) == [[2, 3, 1, 2, 3, 1]]
    one.say(0, [5, 9])
    assert one.guess(0) == [[]]


@pytest.mark.parametrize(
    ("text", "guess"),
    [
        ([7], []),
        ([7, 7, 7], [7, 7, 7, 7, 7, 7]),
        ([1, 2, 1, 2], [1, 2, 1, 2, 1, 2]),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2], [3, 4, 5, 6, 7, 8]),
        ([1, 2, 3, 9, 1, 2, 4, 9, 1, 2], [4, 9, 1, 2, 4, 9]),
        ([0, 5, 5, 1, 2, 3, 9, 1, 2, 4, 0, 5, 5, 1, 2], [3, 9, 1, 2, 4, 0]),
    ],
    ids=["nothing before", "one token", "two tokens", "a phrase", "the last occurrence", "the longer one first"],
)
def test_guesses(text, guess):
    one = Text()
    one.admit(0, text)
    assert one.guess(0) == [guess]


def test_the_lengths_go_from_the_longest_to_the_shortest():
    assert NGramOptions().lengths() == [8, 4, 2]
    assert NGramOptions(longest=7, shortest=2).lengths() == [7, 3, 2]
    assert NGramOptions(longest=3, shortest=3).lengths() == [3]


@pytest.mark.parametrize("bad", [{"longest": 0}, {"longest": 2, "shortest": 3}, {"longest": 65}, {"width": 3}])
def test_bad_options_are_refused(bad):
    with pytest.raises(ValidationError):
        NGramOptions.model_validate(bad)


def test_a_guess_costs_no_search_through_the_text():
    class Line(np.ndarray):
        """Counts the bytes that are read out of it."""

        read = 0

        def tobytes(self, *args):
            Line.read += self.nbytes
            return super().tobytes(*args)

    one = Text()
    one.admit(0, list(range(200)))
    one.guess(0)
    one.pool = one.pool.view(Line)
    for token in range(20):
        one.say(0, [token])
        one.guess(0)
    assert 0 < Line.read <= 20 * 4 * (8 + 1)
