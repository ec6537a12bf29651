"""The scheduler, the loop and settling, against what any correct engine must produce."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core_testing.arithmetic import generate

VOCAB = 97
LENGTHS = (1, 2, 3, 5, 8, 9, 13, 16, 21, 30, 33, 40)
PROMPTS = [[i * 7 % VOCAB for i in range(start, start + length)] for start, length in enumerate(LENGTHS)]


def expected(count: int) -> dict[int, list[int]]:
    return {i: generate(prompt, count, VOCAB) for i, prompt in enumerate(PROMPTS)}


@pytest.mark.covers("ENG-01")
@pytest.mark.parametrize(("chunk", "depth", "prefix"), list(itertools.product((1, 7, 64), (0, 1, 3), (True, False))))
def test_tokens_do_not_depend_on_chunks_overlap_or_prefix_cache(harness, chunk, depth, prefix):
    engine = harness(max_chunk=chunk, depth=depth, prefix=prefix, blocks=128)
    for i, prompt in enumerate(PROMPTS):
        engine.add(i, prompt, max_tokens=12)
    assert engine.run() == expected(12)
    assert set(engine.finished.values()) == {"length"}
    assert engine.pool.used == 0


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("prefix", [True, False])
def test_preemption_by_recompute_gives_the_same_tokens(harness, depth, prefix):
    engine = harness(blocks=22, depth=depth, prefix=prefix, max_len=80)
    for i, prompt in enumerate(PROMPTS):
        engine.add(i, prompt, max_tokens=30)
    assert engine.run() == expected(30)
    assert engine.scheduler.preemptions > 0
    assert engine.pool.used == 0


def test_a_shared_prefix_is_computed_once(harness):
    shared = list(range(40))
    engine = harness(blocks=128, max_seqs=8)
    for i in range(8):
        engine.add(i, [*shared, 90 - i], max_tokens=1)
    engine.run()
    assert engine.worker.computed_tokens == 40 + 8
    assert engine.cache.hits == 7 * 40


def test_salts_share_nothing(harness):
    engine = harness(blocks=128)
    for i, salt in enumerate(["a", "b", None]):
        engine.add(i, list(range(32)), max_tokens=1, salt=salt)
    engine.run()
    assert engine.cache.hits == 0


def test_a_prompt_that_is_cached_entirely_still_computes_its_last_block(harness):
    engine = harness()
    engine.add(0, list(range(16)), max_tokens=2)
    engine.run()
    engine.add(1, list(range(16)), max_tokens=2)
    engine.run()
    assert engine.outputs[0] == engine.outputs[1]
    assert engine.cache.hits == 12


def test_stop_ids_end_a_request_and_the_token_is_delivered(harness):
    tokens = generate(PROMPTS[3], 10, VOCAB)
    engine = harness()
    engine.add(0, PROMPTS[3], stop_ids=[tokens[4]], max_tokens=10)
    engine.run()
    assert engine.outputs[0] == tokens[: tokens.index(tokens[4]) + 1]
    assert engine.finished[0] == "stop"
    assert engine.loop.settler.totals.wasted_tokens == 1  # the step launched before the stop was known


def test_more_stop_ids_than_the_array_holds(harness):
    tokens = generate(PROMPTS[3], 10, VOCAB)
    others = [t for t in range(VOCAB) if t not in tokens][:20]
    engine = harness()
    engine.add(0, PROMPTS[3], stop_ids=[*others, tokens[5]], max_tokens=10)
    engine.add(1, PROMPTS[3], stop_ids=others, max_tokens=10)
    engine.run()
    assert engine.outputs[0] == tokens[: tokens.index(tokens[5]) + 1]
    assert engine.outputs[1] == tokens


def test_length_stops_waste_no_step(harness):
    engine = harness(depth=1)
    engine.add(0, PROMPTS[5], max_tokens=5)
    engine.run()
    assert engine.executor.launched == 5
    assert engine.loop.settler.totals.wasted_tokens == 0


def test_decodes_go_before_a_long_prompt(harness):
    engine = harness(budget=8, blocks=128)
    engine.add(0, PROMPTS[1], max_tokens=10)
    engine.advance()
    engine.add(1, list(range(60)), max_tokens=1)
    turns = 0
    while 0 not in engine.finished:
        engine.advance()
        turns += 1
    assert turns <= 12  # one token a step although the prompt would fill every step's budget
    engine.run()
    assert engine.outputs[1] == generate(list(range(60)), 1, VOCAB)


@pytest.mark.covers("ENG-01")
def test_steps_stay_within_their_limits(harness):
    engine = harness(budget=10, max_seqs=3)
    for i, prompt in enumerate(PROMPTS):
        engine.add(i, prompt, max_tokens=4)
    while engine.loop.busy:
        step = engine.scheduler.schedule()
        if step is not None:
            plan = step.plan
            assert plan.num_tokens <= 10
            assert len(plan.rows) <= 3
            assert len(set(plan.rows.tolist())) == len(plan.rows)
            result = engine.worker.execute(plan)
            engine.loop.settler.settle(step, result)
    assert engine.pool.used == 0


def test_what_can_never_run_is_refused_at_once(harness):
    engine = harness(blocks=8)
    with pytest.raises(ValueError, match="KV blocks"):
        engine.add(0, list(range(20)), max_tokens=50)
    with pytest.raises(ValueError, match="tokens"):
        engine.add(1, [], max_tokens=5)
    assert not engine.scheduler.requests


def test_a_step_that_fails_ends_its_requests_and_the_engine_goes_on(harness):
    engine = harness(max_seqs=2)
    engine.add(0, PROMPTS[4], max_tokens=5)
    engine.add(1, PROMPTS[5], max_tokens=5)
    real, engine.worker.execute = engine.worker.execute, lambda plan: 1 / 0
    engine.advance()
    engine.advance()
    engine.worker.execute = real
    engine.add(2, PROMPTS[4], max_tokens=5)
    engine.run()
    assert engine.finished == {0: "error", 1: "error", 2: "length"}
    assert engine.outputs[2] == generate(PROMPTS[4], 5, VOCAB)


def test_a_row_that_fails_does_not_touch_its_neighbours(harness):
    engine = harness()
    engine.add(0, PROMPTS[4], max_tokens=5)
    engine.add(1, PROMPTS[5], max_tokens=5)
    real = engine.worker.execute

    def poisoned(plan):
        result = real(plan)
        if plan.number == 1:
            result.errors[0] = "not a number"
        return result

    engine.worker.execute = poisoned
    engine.run()
    assert engine.finished == {0: "error", 1: "length"}
    assert engine.outputs[1] == generate(PROMPTS[5], 5, VOCAB)


def test_an_aborted_request_leaves_at_once_and_its_row_is_safe_to_reuse(harness):
    engine = harness(max_seqs=1)
    engine.add(0, PROMPTS[6], max_tokens=20)
    for _ in range(3):
        engine.advance()
    engine.abort(0)
    engine.add(1, PROMPTS[7], max_tokens=8)
    engine.run()
    assert engine.outputs[1] == generate(PROMPTS[7], 8, VOCAB)


request_specs = st.lists(
    st.tuples(
        st.lists(st.integers(0, 3), min_size=1, max_size=30),
        st.integers(1, 12),
        st.integers(0, 20),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    request_specs,
    st.integers(12, 40),
    st.integers(0, 2),
    st.integers(1, 24),
    st.booleans(),
    st.integers(1, 5),
    st.sampled_from([(False, False), (True, False), (True, True)]),
    st.sampled_from([0.0, 1e-9, 0.01]),
)
def test_any_traffic_gives_the_right_tokens(harness, specs, blocks, depth, budget, prefix, seqs, soft_budget, latency):
    """Random prompts that share prefixes, arrivals in any turn, aborts, few blocks, small budgets, short steps."""
    engine = harness(
        blocks=blocks,
        depth=depth,
        budget=budget,
        prefix=prefix,
        max_seqs=seqs,
        max_len=44,
        soft_budget=soft_budget[0],
        spread=soft_budget[1],
        latency=latency,
    )
    pending = sorted(enumerate(specs), key=lambda item: item[1][2])
    aborted = set()
    for turn in range(2000):
        while pending and pending[0][1][2] <= turn:
            handle, (prompt, count, _, _) = pending.pop(0)
            engine.add(handle, prompt, max_tokens=count)
        for handle, (_, _, arrival, doomed) in enumerate(specs):
            if doomed and turn == arrival + 3 and handle in engine.scheduler.requests:
                engine.abort(handle)
                aborted.add(handle)
        if not pending and not engine.loop.busy:
            break
        engine.advance()
        engine.scheduler.check()
    engine.scheduler.check()
    assert engine.pool.used == 0
    assert engine.rows.free == seqs
    for handle, (prompt, count, _, _) in enumerate(specs):
        right = generate(prompt, count, VOCAB)
        if handle in aborted:
            assert right[: len(engine.outputs[handle])] == engine.outputs[handle]
        else:
            assert engine.outputs[handle] == right


def test_a_thousand_running_requests_settle_as_arrays(harness):
    """The step's Python work does not loop over rows that need nothing special: count calls per step."""
    engine = harness(blocks=4000, max_seqs=1000, budget=4000, max_len=64, block_size=16)
    for i in range(1000):
        engine.add(i, [i % VOCAB, i // VOCAB], max_tokens=10)
    engine.run()
    assert engine.outputs[999] == generate([999 % VOCAB, 999 // VOCAB], 10, VOCAB)
    assert engine.executor.launched == 10
    assert np.all(engine.rows.owned == 0)


def test_restarting_what_runs_keeps_tokens_and_computes_their_kv_again(harness):
    engine = harness()
    for i in range(3):
        engine.add(i, PROMPTS[7 + i], max_tokens=12)
    for _ in range(5):
        engine.advance()
    engine.loop.drain()
    before = engine.worker.computed_tokens
    engine.scheduler.restart_running()
    engine.scheduler.forget_cache()
    assert engine.pool.used == 0
    engine.scheduler.check()
    while engine.loop.busy:
        engine.advance()
    assert engine.worker.computed_tokens - before > sum(len(PROMPTS[7 + i]) for i in range(3))
    # Tokens settled by the drain were not recorded by the harness; the end of each output must be right.
    for i in range(3):
        assert generate(PROMPTS[7 + i], 12, VOCAB)[-3:] == engine.outputs[i][-3:]


def test_requests_that_are_there_when_the_weights_change_are_found_by_those_that_come(harness):
    engine = harness(max_seqs=2)
    for i in range(3):  # the third waits
        engine.add(i, PROMPTS[7 + i] * 2, max_tokens=12, salt="s" if i else None)
    for _ in range(7):
        engine.advance()
    engine.loop.drain()
    before = {digest for request in engine.scheduler.requests.values() for digest in request.hashes}
    engine.hasher.update("two", {})
    engine.scheduler.restart_running()
    engine.scheduler.rehash(lambda request: engine.hasher.root(salt=request.cache_salt))
    engine.scheduler.forget_cache()
    for i, request in engine.scheduler.requests.items():
        tokens = [*PROMPTS[7 + i] * 2, *generate(PROMPTS[7 + i] * 2, 12, VOCAB)]
        length = engine.rows.settled[request.row] if request.row >= 0 else request.num_prompt
        due = []
        engine.hasher.extend(due, engine.hasher.root(salt="s" if i else None), np.array(tokens[:length], np.int32))
        assert request.hashes == due and due and not before & set(due)
    while engine.loop.busy:
        engine.advance()
    engine.scheduler.check()
    for i in range(3):
        assert generate(PROMPTS[7 + i] * 2, 12, VOCAB)[-3:] == engine.outputs[i][-3:]
