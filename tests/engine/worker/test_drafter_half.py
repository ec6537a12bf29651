"""The worker half of a drafter: which rows it is asked for, what it may touch, and the copy that it reads elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core.api.participants import SampledStep
from core.api.sampling_params import SamplingParams
from core.api.steps import BlockUpdate, NewRow, StepPlan, StepResult
from core.engine.participants.drafts import Drafted
from core.worker.participants.drafts import DraftsWorkerHalf, MirroredDrafts

VOCAB, ROWS, WIDTH = 50, 4, 30
NONE = np.zeros(0, np.int32)


class Counting:
    """Guesses that a row goes on counting from its last token."""

    def __init__(self):
        self.calls: list = []

    def admit(self, row, prompt):
        if prompt[0] == 13:
            raise ValueError("not this one")
        self.calls.append(("admit", row, prompt.tolist()))

    def propose(self, rows, known, tokens, out):
        self.calls.append(("propose", rows.tolist(), out.shape))
        out[:] = tokens[rows, known - 1][:, None] + 1 + np.arange(out.shape[1])
        return np.full(len(rows), out.shape[1])

    def release(self, row):
        self.calls.append(("release", row))


def plan(**prompts):
    """A plan that brings rows `r0`, `r1`, ... with these prompts."""
    new = [NewRow(int(name[1:]), np.array(ids, np.int32), SamplingParams(), ()) for name, ids in prompts.items()]
    return StepPlan(0, new, (BlockUpdate(NONE, NONE, NONE, NONE),), NONE, NONE, NONE, np.zeros(0, bool), NONE)


@pytest.fixture(params=[DraftsWorkerHalf, MirroredDrafts])
def half(request):
    """A half whose pool holds what rows were given, as a worker's does."""
    pool = torch.zeros(ROWS, WIDTH, dtype=torch.int32)
    made = request.param("counting", Counting(), 4, VOCAB, pool)
    made.test_pool = pool
    return made


def begin(half, **prompts):
    for name, ids in prompts.items():
        half.test_pool[int(name[1:]), : len(ids)] = torch.tensor(ids)
    half.begin(plan(**prompts))


def ask(half, *asked):
    rows, known, most = (np.array(column) for column in zip(*asked))
    return half.drafts(rows, known, most)


def test_guesses_stand_behind_the_known_tokens_as_far_as_they_may(half):
    begin(half, r0=[1, 2, 3], r2=[7])
    assert ask(half, (2, 1, 2), (0, 3, 3)).tolist() == [2, 3]
    assert half.test_pool[2, :4].tolist() == [7, 8, 9, 0] and half.test_pool[0, :7].tolist() == [1, 2, 3, 4, 5, 6, 0]
    result = StepResult(0, NONE)
    half.end(plan(), result)
    part = result.parts["counting"]
    assert isinstance(part, Drafted) and (part.rows.tolist(), part.counts.tolist()) == ([2, 0], [2, 3])


def test_what_was_sampled_is_known_to_the_next_guess(half):
    begin(half, r1=[5])
    half.test_pool[1, 1:3] = torch.tensor([20, 30])
    rows, known = np.array([1, 1]), np.array([1, 2])
    half.sampled(SampledStep(rows, known, np.array([20, 30], np.int32), half.test_pool))
    assert ask(half, (1, 3, 1)).tolist() == [1] and int(half.test_pool[1, 3]) == 31


def test_a_row_has_one_request_at_a_time_and_a_refused_one_is_never_asked(half):
    begin(half, r0=[1], r1=[2])
    with pytest.raises(ValueError, match="not this one"):
        begin(half, r0=[13], r3=[4])
    assert ask(half, (0, 1, 4)) is None
    assert ask(half, (0, 1, 4), (3, 1, 4)).tolist() == [0, 4]
    calls = half._drafter.calls
    assert calls == [
        *(("admit", 0, [1]), ("admit", 1, [2]), ("release", 0), ("admit", 3, [4])),
        ("propose", [3], (1, 4)),
    ]


@pytest.mark.parametrize(
    ("propose", "said"),
    [
        (lambda rows, known, tokens, out: tokens.fill(1), "read-only"),
        (lambda rows, known, tokens, out: rows.fill(1), "read-only"),
        (lambda rows, known, tokens, out: known.fill(1), "read-only"),
        (lambda rows, known, tokens, out: np.ones(7, int), "not 1 integers"),
        (lambda rows, known, tokens, out: [0.5], "not 1 integers"),
        (lambda rows, known, tokens, out: [5], "wrote 5 to 5 tokens, not 0 to 4"),
        (lambda rows, known, tokens, out: [-1], "wrote -1 to -1 tokens"),
        (lambda rows, known, tokens, out: out.fill(VOCAB) or [1], "token 50; the vocabulary has 50"),
        (lambda rows, known, tokens, out: out.fill(-1) or [1], "token -1"),
    ],
)
def test_a_wrong_answer_is_refused_and_leaves_the_pool_alone(half, propose, said):
    begin(half, r0=[1, 2, 3])
    half._drafter.propose = propose
    before = half.test_pool.clone()
    with pytest.raises(ValueError, match=said):
        ask(half, (0, 3, 4))
    assert torch.equal(half.test_pool, before)
    result = StepResult(0, NONE)
    half.end(plan(), result)
    assert result.parts == {}
