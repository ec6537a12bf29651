"""How many tokens a step gets: a limit that the user set, or a platform's advice that waiting prompts divide."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.engine.step_budget import Limits, shared_out
from core_testing.arithmetic import generate

BUDGET = 64
PROMPT = list(range(16))


def steps_of(engine):
    """Run everything, without overlap; return each step's token counts by row."""
    steps = []
    while (step := engine.scheduler.schedule()) is not None:
        steps.append(dict(zip(step.plan.rows.tolist(), step.plan.counts.tolist(), strict=True)))
        engine.loop.settler.settle(step, engine.worker.execute(step.plan))
        engine.scheduler.check()
    return steps


def arrive(engine, lengths, **params):
    """Add one request per length, with prompts that share nothing."""
    params.setdefault("max_tokens", 1)
    for i, length in enumerate(lengths):
        engine.add(i, [(i + 5 * j) % 97 for j in range(length)], **params)


@pytest.mark.parametrize(
    ("waiting", "share"),
    [(1, 512), (512, 512), (1024, 512), (1400, 700), (2048, 1024), (10**6, 1024)],
)
def test_a_step_takes_half_of_what_waits_within_bounds(waiting, share):
    assert Limits(8, 1024, 1024, 4096, soft_budget=True).share(waiting) == share


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(0, 100), st.integers(0, 20))
def test_tokens_are_given_in_turn(need, budget, slack):
    need = np.array(need, np.int64)
    given_ = shared_out(need, budget, slack)
    assert ((given_ >= 0) & (given_ <= need)).all()
    assert given_.sum() <= budget + slack
    assert given_.sum() >= min(budget, need.sum())
    short = np.flatnonzero(given_ < need)
    assert len(short) == 0 or (given_[short[0] + 1 :] == 0).all()
    assert slack or given_.sum() == min(budget, need.sum())
    assert all(need[i] - given_[i] > slack for i in short if given_[i])


def test_decoding_rows_come_on_top_of_an_advised_budget(harness):
    engine = harness(budget=BUDGET, blocks=128, max_seqs=16, soft_budget=True, prefix=False)
    arrive(engine, [16] * 4, max_tokens=3)
    engine.advance()
    for i in range(4, 8):
        engine.add(i, PROMPT, max_tokens=1)
    step = engine.scheduler.schedule()
    assert sorted(step.plan.counts.tolist()) == [1, 1, 1, 1, 16, 16, 16, 16]


def test_a_limit_that_was_set_counts_them_and_cuts_the_last_prompt(harness):
    engine = harness(budget=BUDGET, blocks=128, max_seqs=16, prefix=False)
    arrive(engine, [16] * 4, max_tokens=3)
    engine.advance()
    for i in range(4, 8):
        engine.add(i, PROMPT, max_tokens=1)
    step = engine.scheduler.schedule()
    assert sorted(step.plan.counts.tolist()) == [1, 1, 1, 1, 12, 16, 16, 16]


@pytest.mark.parametrize(
    ("lengths", "steps"),
    [
        ([68], [[68]]),  # an eighth more completes it
        ([72], [[72]]),
        ([73], [[64], [9]]),
        ([60, 12], [[60, 12]]),
        ([60, 13], [[60, 4], [9]]),
        ([136], [[64], [72]]),
    ],
)
def test_the_end_of_a_prompt_may_exceed_advice(harness, lengths, steps):
    engine = harness(budget=BUDGET, max_chunk=128, max_len=256, blocks=128, soft_budget=True)
    arrive(engine, lengths)
    assert [list(step.values()) for step in steps_of(engine)] == steps


@pytest.mark.parametrize(("lengths", "steps"), [([68], [[64], [4]]), ([60, 12], [[60, 4], [8]])])
def test_a_limit_that_was_set_is_never_exceeded(harness, lengths, steps):
    engine = harness(budget=BUDGET, max_chunk=128, blocks=128)
    arrive(engine, lengths)
    assert [list(step.values()) for step in steps_of(engine)] == steps


@pytest.mark.parametrize(
    ("lengths", "steps"),
    [
        ([16] * 4, [[16, 16], [16, 16]]),
        ([16] * 8, [[16] * 4, [16] * 2, [16] * 2]),
        ([64], [[64]]),  # who is alone waits for nobody
        ([64, 64], [[64], [64]]),
        ([16] * 6, [[16] * 3, [16] * 2, [16]]),
        ([40, 8, 8], [[40], [8, 8]]),
    ],
)
def test_prompts_that_come_together_are_spread_in_order_of_arrival(harness, lengths, steps):
    engine = harness(budget=BUDGET, blocks=128, max_seqs=16, max_chunk=128, soft_budget=True, spread=True, prefix=False)
    arrive(engine, lengths)
    seen = steps_of(engine)
    assert [list(step.values()) for step in seen] == steps
    assert engine.scheduler.waiting.tokens == 0


def test_steps_are_filled_when_nobody_waits_for_a_first_token(harness):
    engine = harness(budget=BUDGET, blocks=128, max_seqs=16, soft_budget=True, prefix=False)
    arrive(engine, [16] * 8)
    assert [len(step) for step in steps_of(engine)] == [4, 4]


def test_a_limit_that_was_set_is_not_spread(harness):
    engine = harness(budget=BUDGET, blocks=128, max_seqs=16, spread=True, prefix=False)
    arrive(engine, [16] * 8)
    assert [len(step) for step in steps_of(engine)] == [4, 4]


def test_tokens_do_not_depend_on_who_shares_a_step(harness):
    prompts = [[(i * 7 + j) % 97 for j in range(3 + 5 * i)] for i in range(8)]
    for soft_budget, spread in ((False, False), (True, False), (True, True)):
        engine = harness(budget=24, blocks=128, soft_budget=soft_budget, spread=spread)
        for i, prompt in enumerate(prompts):
            engine.add(i, prompt, max_tokens=6)
        assert engine.run() == {i: generate(prompt, 6, 97) for i, prompt in enumerate(prompts)}


def test_the_queue_knows_its_tokens_whatever_happens_to_a_request(harness):
    engine = harness(max_seqs=1, blocks=64)
    arrive(engine, [10, 20, 30], max_tokens=4)
    assert engine.scheduler.waiting.tokens == 60
    engine.advance()
    assert engine.scheduler.waiting.tokens == 50
    engine.abort(2)
    assert engine.scheduler.waiting.tokens == 20
    engine.loop.drain()
    engine.scheduler.restart_running()
    assert engine.scheduler.waiting.tokens == 30
    engine.run()
    assert engine.scheduler.waiting.tokens == 0


@pytest.mark.parametrize("spread", [False, True])
def test_a_long_prompt_is_not_starved_by_short_ones(harness, spread):
    """Short prompts that come in every step wait behind it, and it for those before it alone."""
    engine = harness(
        budget=BUDGET, blocks=600, max_seqs=64, max_len=512, max_chunk=512, soft_budget=True, spread=spread
    )
    arrive(engine, [16] * 4, max_tokens=40)
    engine.advance()
    engine.add(100, [(3 * j) % 97 for j in range(400)], max_tokens=1)
    for number in range(101, 112):
        engine.add(number, [(number + 7 * j) % 97 for j in range(12)], max_tokens=1)
        engine.advance()
    assert len(engine.outputs[100]) == 1
    engine.run()
    assert engine.started.index(100) < engine.started.index(101)
    assert engine.outputs[100] == generate([(3 * j) % 97 for j in range(400)], 1, 97)
