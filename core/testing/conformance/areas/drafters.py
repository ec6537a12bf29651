"""Drafters: drafts within their limits, from a row's own tokens alone, and nothing left of a request that is gone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from core.api.descriptors import DrafterSpec
from core.api.drafters import Drafter, DrafterContext
from core.testing.conformance.outcome import checks, require
from core.testing.conformance.subject import Subject
from core.testing.conformance.tools.options import every_options

VOCABULARY = 50
ROWS = 8
_STEPS = 60


@dataclass(frozen=True, slots=True)
class Made:
    """A drafter and the limit that it was made with."""

    drafter: Drafter
    most: int


def drafts_keep_their_limits(subject: Subject) -> None:
    """One draft per row: at most `max_draft` tokens of the vocabulary each, and at most `budget` in all."""
    rng = random.Random(1)
    for made in _drafters(subject):
        rows = _admit(made.drafter, rng)
        for _ in range(_STEPS):
            asked = rng.sample(rows, rng.randint(1, ROWS))
            budget = rng.choice((0, 1, 2, made.most, ROWS * made.most))
            drafts = made.drafter.propose(list(asked), budget)
            _require_limits(drafts, asked, made.most, budget)
            made.drafter.observe(asked, [[rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 3))] for _ in asked])


def asking_changes_nothing(subject: Subject) -> None:
    """Asked again it proposes the same, and it writes neither to prompts nor to what it is asked."""
    for made in _drafters(subject):
        for row, prompt in enumerate(_prompts(random.Random(2))):
            before = prompt.copy()
            made.drafter.admit(row, prompt)
            require(np.array_equal(prompt, before), "admit writes to the prompt")
        asked = list(range(ROWS))
        answers = [made.drafter.propose(asked, ROWS * made.most) for _ in range(3)]
        require(answers[0] == answers[1] == answers[2], f"asked three times it proposes {answers}")
        require(asked == list(range(ROWS)), "propose writes to the list of rows")


def rows_do_not_mix(subject: Subject) -> None:
    """With budget enough a row's draft is the same alone and among others, in any order."""
    for together, alone in zip(_drafters(subject), _drafters(subject)):
        prompts = _prompts(random.Random(3))
        for row, prompt in enumerate(prompts):
            together.drafter.admit(row, prompt.copy())
        for row, prompt in enumerate(prompts):
            alone.drafter.admit(row, prompt.copy())
            due = alone.drafter.propose([row], ROWS * alone.most)[0]
            alone.drafter.release(row)
            for order in (range(ROWS), range(ROWS - 1, -1, -1)):
                found = together.drafter.propose(list(order), ROWS * together.most)[list(order).index(row)]
                require(found == due, f"row {row} gets {found} among others, alone it gets {due}")


def rows_are_forgotten(subject: Subject) -> None:
    """A row that is given away has nothing of the request before."""
    prompts = _prompts(random.Random(4))
    for used, fresh in zip(_drafters(subject), _drafters(subject)):
        # A prompt of one token of the request before tempts most to go on as that one did.
        pairs = [*pairwise(prompts), *((prompt, prompt[:1]) for prompt in prompts)]
        for first, second in pairs:
            used.drafter.admit(0, first.copy())
            used.drafter.observe([0], [first.tolist()])
            used.drafter.propose([0], used.most)
            used.drafter.release(0)
            used.drafter.admit(0, second.copy())
            fresh.drafter.admit(0, second.copy())
            found, due = (one.drafter.propose([0], one.most) for one in (used, fresh))
            require(found == due, f"after another request the row gets {found}, in a new drafter {due}")
            used.drafter.release(0)
            fresh.drafter.release(0)


def pieces_do_not_matter(subject: Subject) -> None:
    """However settled tokens are cut into calls of `observe`, the draft behind them is the same."""
    for whole, single in zip(_drafters(subject), _drafters(subject)):
        for row, prompt in enumerate(_prompts(random.Random(5))):
            cut = len(prompt) // 2 + 1
            rest = prompt[cut:].tolist()
            for one in (whole, single):
                one.drafter.admit(row, prompt[:cut].copy())
            whole.drafter.observe([row], [rest])
            for token in rest:
                single.drafter.observe([row], [[token]])
            found, due = (one.drafter.propose([row], one.most) for one in (single, whole))
            require(found == due, f"told {rest} one by one it proposes {found}, at once {due}")


def _drafters(subject: Subject) -> Iterator[Made]:
    """Yield a drafter for each set of options and limit."""
    for options in every_options(subject):
        for most in sorted({1, subject.spec(DrafterSpec).max_draft}):
            yield Made(subject.impl()(DrafterContext(ROWS, most, VOCABULARY, options)), most)


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


def _admit(drafter: Drafter, rng: random.Random) -> list[int]:
    for row, prompt in enumerate(_prompts(rng)):
        drafter.admit(row, prompt)
    return list(range(ROWS))


def _require_limits(drafts: object, asked: Sequence[int], most: int, budget: int) -> None:
    plain = isinstance(drafts, list) and all(isinstance(one, list) for one in drafts)
    require(plain and isinstance(drafts, list), f"propose gives {drafts!r}, due is a list of lists")
    lists: list[list[int]] = drafts  # type: ignore[assignment]
    require(len(lists) == len(asked), f"for {len(asked)} rows it gives {len(lists)} drafts")
    longest, total = max(map(len, lists)), sum(map(len, lists))
    require(longest <= most, f"a draft has {longest} tokens, max_draft is {most}")
    require(total <= budget, f"it drafts {total} tokens with a budget of {budget}")
    strange = [token for one in lists for token in one if type(token) is not int or not 0 <= token < VOCABULARY]
    require(not strange, f"it drafts {strange[:3]!r}, tokens are integers below {VOCABULARY}")


CHECKS = checks(
    drafts_keep_their_limits, asking_changes_nothing, rows_do_not_mix, rows_are_forgotten, pieces_do_not_matter
)
