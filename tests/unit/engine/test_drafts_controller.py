"""How many drafts a row may run: many where they are right, none where they are not, and a trial now and then."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from core.api.steps import BlockUpdate, StepPlan, StepResult
from core.api.wire import MessageDecoder, encode_message
from core.engine.participants.drafts import PROBED, Drafted, DraftsEngineHalf
from core.engine.participants.stages import Stages
from core_testing.arithmetic import generate

from .conftest import VOCAB, faults

NONE = np.zeros(0, np.int32)


@pytest.fixture
def half():
    return DraftsEngineHalf("ngram", 4, 8, faults("core.drafters", "ngram", optional=True))


def asked(half, row, room=9):
    return int(half.drafts(np.array([row]), np.array([room]))[0])


def settled(half, row, bound, kept, ran=None):
    """A step of one row has run `ran` of at most `bound` drafts and kept some."""
    one = np.array([row], np.int32)
    plan = StepPlan(0, [], (BlockUpdate(NONE, NONE, NONE, NONE),), one, one, one, np.array([True]), one)
    plan.drafts = np.array([bound], np.int32)
    result = StepResult(0, np.zeros(1 + kept, np.int32), counts=np.array([1 + kept], np.int32))
    result.parts["ngram"] = Drafted(one, np.array([bound if ran is None else ran], np.int32))
    Stages((half,)).collect(plan, result)


def test_a_row_begins_with_all_and_keeps_them_while_they_are_right(half):
    half.run(SimpleNamespace(row=3))
    for _ in range(50):
        assert asked(half, 3) == 4 and asked(half, 3, room=2) == 2 and asked(half, 3, room=0) == 0
        settled(half, 3, 4, 4)


def test_a_row_whose_drafts_are_wrong_tries_once_in_a_while(half):
    half.run(SimpleNamespace(row=3))
    for _ in range(20):
        if bound := asked(half, 3):
            settled(half, 3, bound, 0)
    trials = []
    for step in range(PROBED * 5):
        bound = asked(half, 3)
        if bound:
            trials.append(step)
            settled(half, 3, bound, 0)
    assert np.diff(trials).tolist() == [PROBED + 1] * (len(trials) - 1) and len(trials) >= 4


def test_a_trial_that_succeeds_brings_drafts_back(half):
    half.run(SimpleNamespace(row=3))
    for _ in range(20):
        settled(half, 3, 4, 0)
    while not asked(half, 3):
        pass
    settled(half, 3, 4, 4)
    bounds = []
    for _ in range(12):
        bounds.append(asked(half, 3))
        settled(half, 3, bounds[-1], bounds[-1])
    assert bounds == sorted(bounds) and bounds[0] >= 1 and bounds[-1] == 4


def test_rows_do_not_share_their_luck(half):
    for row in (1, 2):
        half.run(SimpleNamespace(row=row))
    for _ in range(20):
        settled(half, 1, 4, 0)
    assert asked(half, 1) == 0 and asked(half, 2) == 4
    half.run(SimpleNamespace(row=1))  # the next request
    assert asked(half, 1) == 4


@pytest.mark.covers("SPEC-06")
def test_drafts_are_counted_by_position(half):
    half.run(SimpleNamespace(row=0))
    for kept, ran in ((4, 4), (2, 4), (0, 3), (0, 0)):
        settled(half, 0, 4, kept, ran)
    expected = {"drafts": 3, "draft_tokens": 11, "accepted_tokens": 6, "accepted_by_position": [2, 2, 1, 1]}
    assert Stages((half,)).stats() == {"ngram": expected}


def test_a_drafter_that_is_switched_off_gets_no_rows_and_is_closed_once(half, harness):
    engine = harness(participants=(half,), agreement=1.0, max_len=128)
    plans = []
    execute = engine.worker.execute
    engine.worker.execute = lambda plan: plans.append(plan) or execute(plan)
    engine.add(0, [1, 2, 3], max_tokens=40)
    for _ in range(4):
        engine.advance()
    half.faults.note("broken", fatal=True)
    engine.run()
    assert engine.outputs == {0: generate([1, 2, 3], 40, VOCAB)}
    assert [plan.number for plan in plans if plan.leaving] == [next(p.number for p in plans if p.leaving)]
    after = [plan.drafts.max() for plan in plans if plan.number > next(p.number for p in plans if p.leaving)]
    assert max(after) == 0 and len(after) > 10


def test_what_was_drafted_comes_through_a_process_border(half):
    result = StepResult(0, np.zeros(1, np.int32), counts=np.ones(1, np.int32))
    result.parts["ngram"] = Drafted(np.array([3], np.int32), np.array([2], np.int32))
    read: StepResult = MessageDecoder(StepResult).decode(encode_message(result))
    Stages((half,)).collect(StepPlan(0, [], (BlockUpdate(NONE, NONE, NONE, NONE),), NONE, NONE, NONE, NONE, NONE), read)
    assert isinstance(read.parts["ngram"], Drafted) and read.parts["ngram"].counts.tolist() == [2]
