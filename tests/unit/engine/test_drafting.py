"""Rows that run drafts behind their last token: the text never changes, whatever happens around it."""

from __future__ import annotations

import numpy as np
import pytest

from core.api.grammars import Grammar
from core.api.participants import Participant
from core.api.steps import StepResult, TopLogprobs
from core.engine.participants.stages import Stages
from core_testing.arithmetic import generate

from .conftest import VOCAB
from .test_structured_stage import parity_participant, parity_text

STOP = VOCAB - 1


def expected(prompt, count, known, stop, grammar=None, windows=(0,)):
    """Return what a request must get behind the `known` tokens that it came with."""
    text = parity_text(prompt, count) if grammar else generate(prompt, count, VOCAB, windows)
    ends = text.index(stop, known) + 1 if stop in text[known:] else count
    return text[:known], text[known:ends]


def always_four(engine):
    """Let every decoding row run four drafts, if there is room."""
    engine.scheduler.stages.drafts = (lambda rows, room: np.minimum(4, room),)


@pytest.mark.covers("SPEC-01", "GRAM-02")
@pytest.mark.parametrize("depth", range(5))
@pytest.mark.parametrize("windows", [(0,), (5,), (0, 5, 5)])
@pytest.mark.parametrize("seed", range(4))
def test_drafts_never_change_a_text(harness, depth, windows, seed):
    """Preemption, chunks, shared prefixes, aborts, stop ids inside drafts, requests that came with output, grammars."""
    random = np.random.default_rng(seed)
    participants = (parity_participant(),) if windows == (0,) else ()
    blocks = 1 + 23 * len(windows)
    sizes = {"blocks": blocks, "block_size": 2, "budget": 24, "max_chunk": 5, "max_seqs": 6, "max_len": 40}
    engine = harness(participants=participants, depth=depth, windows=windows, drafts=4, **sizes)
    wanted, aborted = {}, set()
    for handle in range(40):
        prompt = random.integers(0, 3, int(random.integers(1, 14))).tolist()
        count = int(random.integers(1, 20))
        grammar = Grammar("choice", "a") if handle % 4 == 1 and participants else None
        known = int(random.integers(0, count)) if handle % 5 == 0 else 0
        text = parity_text(prompt, count) if grammar else generate(prompt, count, VOCAB, windows)
        stop = text[int(random.integers(0, count))] if handle % 3 == 0 else STOP
        given, wanted[handle] = expected(prompt, count, known, stop, grammar, windows)
        engine.add(handle, prompt, max_tokens=count, grammar=grammar, stop_ids=[stop], generated=given)
        for _ in range(int(random.integers(0, 4))):
            engine.advance()
        if handle % 7 == 6 and handle - 1 in engine.scheduler.requests:
            engine.abort(handle - 1)
            aborted.add(handle - 1)
        if handle % 6 == 5 and engine.scheduler.running:
            engine.scheduler.preempt(list(engine.scheduler.running.values())[-1])
        engine.scheduler.check()
    engine.run()
    assert {handle: engine.outputs[handle] for handle in wanted if handle not in aborted} == {
        handle: text for handle, text in wanted.items() if handle not in aborted
    }
    assert engine.scheduler.preemptions > 0 and engine.worker.accepted > 0
    assert engine.pool.used == 0 and not engine.rows.slack.any()


@pytest.mark.covers("SPEC-01")
@pytest.mark.parametrize("depth", range(5))
def test_stop_ids_are_held_back_inside_a_draft(harness, depth):
    text = generate([1, 2, 3], 12, VOCAB)
    engine = harness(depth=depth, drafts=4, agreement=1.0)
    engine.add(0, [1, 2, 3], max_tokens=12, min_tokens=6, stop_ids=[text[2], text[3]])
    plain = harness(depth=depth)
    plain.add(0, [1, 2, 3], max_tokens=12, min_tokens=6, stop_ids=[text[2], text[3]])
    assert engine.run() == plain.run()
    assert len(engine.outputs[0]) > 6 and engine.finished == plain.finished


@pytest.mark.covers("SPEC-01")
@pytest.mark.parametrize("agreement", [0.0, 0.3, 0.7, 0.9, 1.0])
def test_as_many_drafts_are_kept_as_agree(harness, agreement):
    """A draft is kept if it and all before it are right: with four of them, p + p^2 + p^3 + p^4 on average."""
    engine = harness(drafts=4, agreement=agreement, max_len=4000, blocks=1100, depth=0)
    always_four(engine)
    gains: list[int] = []
    execute = engine.worker.execute

    def noted(plan):
        before = engine.worker.drafted
        result = execute(plan)
        if engine.worker.drafted - before == 4:
            gains.append(int(result.counts[0]) - 1)
        return result

    engine.worker.execute = noted
    engine.add(0, [1, 2], max_tokens=3900)
    engine.run()
    assert engine.outputs[0] == generate([1, 2], 3900, VOCAB)
    assert np.mean(gains) == pytest.approx(sum(agreement**i for i in range(1, 5)), rel=0.07)


class Watch(Participant):
    """Notes what it is asked and told; may end a request at one of its tokens."""

    name = "watch"

    def __init__(self, *, proposes=False, ends=None):
        self.proposes, self.ends = proposes, ends
        self.asked, self.told, self.plans = 0, [], []

    def drafts(self, rows, room):
        self.asked += 1
        return room

    def plan(self, plan):
        self.plans.append(plan)

    def settle(self, requests, tokens):
        self.told += [(request.handle, token) for request, token in zip(requests, tokens.tolist(), strict=True)]
        return {i: "enough" for i, token in enumerate(tokens.tolist()) if token == self.ends}


def test_without_a_proposer_nobody_is_asked_and_nothing_is_bound_late(harness):
    watch = Watch()
    engine = harness(participants=(watch,))
    engine.add(0, [1, 2, 3], max_tokens=6)
    engine.run()
    assert watch.asked == 0 and Stages((watch,)).drafts == ()
    assert [plan.drafts for plan in watch.plans] == [None] * 6
    assert not engine.rows.slack.any()


@pytest.mark.parametrize("depth", [0, 2])
def test_participants_are_told_of_every_token_once_and_in_order(harness, depth):
    watch = Watch(proposes=True)
    engine = harness(participants=(watch,), depth=depth, drafts=4, agreement=0.8)
    prompts = {0: [1, 2, 3], 1: [4, 5]}
    for handle, prompt in prompts.items():
        engine.add(handle, prompt, max_tokens=30)
    engine.run()
    assert engine.executor.launched < 30
    for handle, prompt in prompts.items():
        assert [token for told, token in watch.told if told == handle] == generate(prompt, 30, VOCAB)


@pytest.mark.parametrize("depth", [0, 2])
def test_what_follows_a_refused_token_is_not_given(harness, depth):
    text = generate([1, 2, 3], 30, VOCAB)
    engine = harness(participants=(Watch(proposes=True, ends=text[7]),), depth=depth, drafts=4, agreement=1.0)
    engine.add(0, [1, 2, 3], max_tokens=30)
    engine.run()
    assert engine.outputs[0] == text[: text.index(text[7]) + 1]
    assert engine.finished == {0: "error"} and engine.errors == {0: "enough"}


@pytest.mark.covers("SPEC-05")
@pytest.mark.parametrize("soft_budget", [False, True])
def test_drafts_fit_into_the_budget_and_leave_prompts_their_half(harness, soft_budget):
    engine = harness(depth=0, drafts=4, agreement=1.0, budget=12, soft_budget=soft_budget, max_len=400, blocks=400)
    always_four(engine)
    for handle in range(4):
        engine.add(handle, [handle], max_tokens=100)
    while not all(engine.outputs[handle] for handle in range(4)):
        engine.advance()
    alone = engine.scheduler.schedule().plan
    assert alone.counts.sum() == (20 if soft_budget else 12) and (alone.counts >= 1).all()


def test_nobody_gives_way_to_drafts(harness):
    """Three requests that stop fill the pool exactly. Drafts would need a third block each, which none ever uses."""
    texts = {handle: generate([handle, 1, 2], 5, VOCAB) for handle in range(3)}
    assert all(text.index(text[-1]) == 4 for text in texts.values())
    engine = harness(depth=0, drafts=4, agreement=0.5, blocks=7, block_size=4, max_len=16)
    always_four(engine)
    for handle, text in texts.items():
        engine.add(handle, [handle, 1, 2], max_tokens=13, stop_ids=[text[-1]])
    engine.run()
    assert engine.scheduler.preemptions == 0
    assert engine.outputs == texts


def test_log_probabilities_belong_to_their_tokens(harness):
    """Row 0 gains three tokens, of which the second ends it; row 1 gains two."""
    engine = harness(depth=0, drafts=4, agreement=1.0)
    always_four(engine)
    engine.add(0, [1], max_tokens=20, stop_ids=[50])
    engine.add(1, [2], max_tokens=20)
    engine.advance()
    step = engine.scheduler.schedule()
    assert step.plan.drafts.tolist() == [4, 4]
    scores = {i: TopLogprobs(np.array([[i]]), np.array([[-1.0]]), np.array([1])) for i in range(5)}
    tokens = np.array([7, 50, 8, 9, 10], np.int32)
    result = StepResult(step.plan.number, tokens, logprobs=scores, counts=np.array([3, 2], np.int32))
    outputs = engine.loop.settler.settle(step, result)
    assert np.frombuffer(outputs.handles, "<i8").tolist() == [0, 0, 1, 1]
    assert np.frombuffer(outputs.tokens, "<i4").tolist() == [7, 50, 9, 10]
    assert [outputs.logprobs[i].ids for i in range(4)] == [[0], [1], [3], [4]]
    assert [(one.handle, one.reason) for one in outputs.finished] == [(0, "stop")]
    row = next(iter(engine.scheduler.running.values())).row
    table = engine.rows
    assert (table.known[row], table.computed[row], table.slack[row], table.settled[row]) == (4, 3, 0, 4)
