"""Drafters: guesses within their limits, from a row's own tokens alone, and nothing left of a request that is gone."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

import numpy as np

from core.api.descriptors import DrafterSpec
from core.api.drafters import Drafter, DrafterContext
from core_testing.conformance.outcome import Failed, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.options import every_options

VOCABULARY = 50
ROWS = 8
_LENGTH = 512
_STEPS = 60
_LONG = 4096
_SLOWEST = 200e-6


class Bench:
    """A drafter beside a token pool, driven as a worker does.

    Attributes:
        most: The `max_draft` that it was made with.
        tokens: `(ROWS, length)` int32, the pool. Unknown places hold tokens that are none.
        known: `(ROWS,)` int64, how many tokens of each row are known.
    """

    def __init__(self, drafter: Drafter, most: int, length: int = _LENGTH) -> None:
        self.drafter, self.most = drafter, most
        self.tokens = np.full((ROWS, length), -1, np.int32)
        self.known = np.zeros(ROWS, np.int64)

    def admit(self, row: int, prompt: np.ndarray) -> None:
        """Give the row to a request."""
        self.tokens[row] = -1
        self.tokens[row, : len(prompt)] = prompt
        self.known[row] = len(prompt)
        self.drafter.admit(row, prompt)

    def say(self, row: int, tokens: Sequence[int]) -> None:
        """Add tokens behind the known ones."""
        self.tokens[row, self.known[row] : self.known[row] + len(tokens)] = tokens
        self.known[row] += len(tokens)

    def ask(self, rows: Sequence[int], width: int | None = None) -> list[list[int]]:
        """Return the guess of each row, at most `width` tokens long; raise `Failed` if they are none."""
        width = self.most if width is None else width
        index, out = np.array(rows, np.int64), np.full((len(rows), width), -1, np.int32)
        counts = self.drafter.propose(index, self.known[index], self.tokens, out)
        _require_counts(counts, len(rows), width)
        guesses = [line[:count].tolist() for line, count in zip(out, counts)]
        strange = [token for guess in guesses for token in guess if not 0 <= token < VOCABULARY]
        require(not strange, f"it guesses {strange[:3]}, tokens are integers from 0 to {VOCABULARY - 1}")
        return guesses


def guesses_keep_their_limits(subject: Subject) -> None:
    """One count per row, at most as many tokens as there is room for, and each a token of the vocabulary."""
    rng = random.Random(1)
    for bench in _benches(subject):
        _admit_all(bench, rng)
        for _ in range(_STEPS):
            rows = rng.sample(range(ROWS), rng.randint(1, ROWS))
            bench.ask(rows, rng.randint(1, bench.most))
            for row in rows:
                bench.say(row, [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 3))])


def asking_changes_nothing(subject: Subject) -> None:
    """Asked again it guesses the same, and it writes neither to prompts nor to rows, counts and tokens."""
    for bench in _benches(subject):
        for row, prompt in enumerate(_prompts(random.Random(2))):
            before = prompt.copy()
            bench.admit(row, prompt)
            require(np.array_equal(prompt, before), "admit writes to the prompt")
        rows, known, tokens = np.arange(ROWS), bench.known.copy(), bench.tokens.copy()
        bench.drafter.propose(rows, known, tokens, np.full((ROWS, bench.most), -1, np.int32))
        require(np.array_equal(rows, np.arange(ROWS)), "propose writes to rows")
        require(np.array_equal(known, bench.known), "propose writes to known")
        require(np.array_equal(tokens, bench.tokens), "propose writes to tokens")
        answers = [bench.ask(range(ROWS)) for _ in range(3)]
        require(answers[0] == answers[1] == answers[2], f"asked three times it guesses {answers}")


def unknown_tokens_are_not_read(subject: Subject) -> None:
    """Content behind a row's known tokens makes no difference: nothing, or guesses that were refused."""
    for clean, used in zip(_benches(subject), _benches(subject)):
        for row, prompt in enumerate(_prompts(random.Random(6))):
            for bench in (clean, used):
                bench.admit(row, prompt.copy())
            end = int(used.known[row])
            used.tokens[row, end : 2 * end] = prompt
        found, due = used.ask(range(ROWS)), clean.ask(range(ROWS))
        require(found == due, f"with other tokens behind the known ones it guesses {found}, without {due}")


def rows_do_not_mix(subject: Subject) -> None:
    """A row's guess is the same alone and among others, in any order."""
    for together, alone in zip(_benches(subject), _benches(subject)):
        prompts = _prompts(random.Random(3))
        for row, prompt in enumerate(prompts):
            together.admit(row, prompt.copy())
        for row, prompt in enumerate(prompts):
            alone.admit(row, prompt.copy())
            (due,) = alone.ask([row])
            alone.drafter.release(row)
            for order in (range(ROWS), range(ROWS - 1, -1, -1)):
                found = together.ask(order)[order.index(row)]
                require(found == due, f"row {row} gets {found} among others, alone it gets {due}")


def rows_are_forgotten(subject: Subject) -> None:
    """A row that is given away, or starts over, has nothing of what it held before."""
    prompts = _prompts(random.Random(4))
    # A prompt of one token of the request before tempts most to go on as that one did.
    pairs = [*pairwise(prompts), *((prompt, prompt[:1]) for prompt in prompts)]
    for used, fresh in zip(_benches(subject), _benches(subject)):
        for place, (first, second) in enumerate(pairs):
            used.admit(0, first.copy())
            used.say(0, first.tolist())
            used.ask([0])
            if place % 2:
                used.drafter.release(0)
            for bench in (used, fresh):
                bench.admit(0, second.copy())
            (found,), (due,) = used.ask([0]), fresh.ask([0])
            require(found == due, f"after another request the row gets {found}, in a new drafter {due}")
            for bench in (used, fresh):
                bench.drafter.release(0)


def pieces_do_not_matter(subject: Subject) -> None:
    """Whether it is asked after each token or once, the guess behind all of them is the same."""
    for whole, single in zip(_benches(subject), _benches(subject)):
        for row, prompt in enumerate(_prompts(random.Random(5))):
            cut = len(prompt) // 2 + 1
            for bench in (whole, single):
                bench.admit(row, prompt[:cut].copy())
            rest = prompt[cut:].tolist()
            whole.say(row, rest)
            for token in rest:
                single.say(row, [token])
                single.ask([row])
            (found,), (due,) = single.ask([row]), whole.ask([row])
            require(found == due, f"asked after each of {rest} it guesses {found}, asked once {due}")


def guesses_are_quick(subject: Subject) -> None:
    """With 4,096 tokens known, the median call takes at most 0.2 ms of processor time a row."""
    rng = random.Random(7)
    for bench in _benches(subject, _LONG + 4 * _STEPS):
        for row in range(ROWS):
            # Half of the rows use few tokens, so that much repeats.
            few = VOCABULARY if row % 2 else 4
            bench.admit(row, np.array([rng.randrange(few) for _ in range(_LONG)], np.int32))
        bench.ask(range(ROWS))
        seconds = median(_timed(bench, rng) for _ in range(_STEPS)) / ROWS
        require(seconds <= _SLOWEST, f"a guess takes {seconds * 1e6:.0f} us a row, due are {_SLOWEST * 1e6:.0f}")


def _timed(bench: Bench, rng: random.Random) -> float:
    for row in range(ROWS):
        bench.say(row, [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 3))])
    begin = time.process_time()
    bench.ask(range(ROWS))
    return time.process_time() - begin


def _benches(subject: Subject, length: int = _LENGTH) -> Iterator[Bench]:
    """Yield a drafter for each set of options and limit."""
    for options in every_options(subject):
        for most in sorted({1, subject.spec(DrafterSpec).max_draft}):
            yield Bench(subject.impl()(DrafterContext(ROWS, most, VOCABULARY, options)), most, length)


def _prompts(rng: random.Random) -> list[np.ndarray]:
    """Return a prompt per row: short and long, repeating and not."""
    phrase = [rng.randrange(VOCABULARY) for _ in range(5)]
    lists = [
        [rng.randrange(VOCABULARY)],
        phrase * 4,
        [7] * 30,
        [rng.randrange(VOCABULARY) for _ in range(200)],
        [*phrase, 1, 2, *phrase[:3]],
        [rng.randrange(4) for _ in range(64)],
        [0, VOCABULARY - 1] * 9,
        [*range(VOCABULARY), 3, 4],
    ]
    return [np.array(one, np.int32) for one in lists]


def _admit_all(bench: Bench, rng: random.Random) -> None:
    for row, prompt in enumerate(_prompts(rng)):
        bench.admit(row, prompt)


def _require_counts(counts: object, rows: int, width: int) -> None:
    if not isinstance(counts, np.ndarray) or not np.issubdtype(counts.dtype, np.integer):
        raise Failed(f"propose gives {counts!r}, due is an array of integers")
    require(counts.shape == (rows,), f"for {rows} rows propose gives counts of shape {counts.shape}")
    fits = bool(((counts >= 0) & (counts <= width)).all())
    require(fits, f"propose gives the counts {counts.tolist()}, where 0 to {width} are possible")


CHECKS = checks(
    guesses_keep_their_limits,
    asking_changes_nothing,
    unknown_tokens_are_not_read,
    rows_do_not_mix,
    rows_are_forgotten,
    pieces_do_not_matter,
    guesses_are_quick,
)
