"""Blocks that a KV connector promised and did not bring: they are computed, and only by those who needed them."""

from __future__ import annotations

import numpy as np
import pytest

from core_testing.arithmetic import generate

VOCAB = 97
PREFIX = [i * 5 % VOCAB for i in range(40)]  # ten blocks of four
PROMPTS = [[*PREFIX, 90 - i, *range(i, i + 9)] for i in range(4)]
INNOCENT = [5, 6, 7]


def fail(*given):
    raise OSError("the store is away")


def raises(engine):
    engine.shelf.unreadable = set(range(100))


def misses(*places):
    """Return a function that takes blocks of the prefix away from the worker's half, at these places."""

    def spoil(engine):
        hashes = []
        engine.hasher.extend(hashes, engine.hasher.root(), np.array(PREFIX, np.int32))
        engine.shelf.missing = {hashes[place] for place in places}

    return spoil


def names_others(engine):
    engine.shelf.begin = lambda message: [1, 2, 99]


def loses_its_message(engine):
    engine.shelf.plan_step = fail


def gives_no_message(engine):
    engine.shelf.plan_step = lambda: None


WAYS = {
    "begin raises": (raises, 0, "begin() raised OSError: the store cannot be read"),
    "the first block": (misses(0), 0, "1 of 10 blocks could not be loaded"),
    "a block between": (misses(4), 4, "1 of 10 blocks could not be loaded"),
    "several": (misses(9, 2, 5), 2, "3 of 10 blocks could not be loaded"),
    "the last": (misses(9), 9, "1 of 10 blocks could not be loaded"),
    "begin names other blocks": (names_others, 0, "it names blocks that were not to be loaded: ["),
    "plan_step raises": (loses_its_message, 0, "plan_step() raised OSError: the store is away"),
    "plan_step gives nothing": (gives_no_message, 0, "plan_step() gave no message, and blocks were to be loaded"),
}
ways = pytest.mark.parametrize(("spoil", "sound", "told"), WAYS.values(), ids=WAYS)
depths = pytest.mark.parametrize("depth", [0, 1, 2])


@pytest.fixture
def make(harness):
    """`make(depth)` -> an engine whose connector holds the prefix, in the middle of answering somebody else."""

    def made(depth=1, **more):
        engine = harness(shelved=True, blocks=128, depth=depth, **more)
        engine.shelf.put(engine, PREFIX)
        engine.add(9, INNOCENT, max_tokens=20)
        for _ in range(3):
            engine.advance()
        return engine

    return made


def until(engine, handle, holds):
    """Run until a request has ended; none of its tokens is thrown away meanwhile."""
    for _ in range(200):
        if handle in engine.finished:
            return
        assert holds()
        engine.advance()
    raise AssertionError(f"{handle} does not end")


def wanted(count):
    return {9: generate(INNOCENT, 20, VOCAB)} | {i: generate(PROMPTS[i], 8, VOCAB) for i in range(count)}


def check(engine, count, told):
    """Everybody got his tokens, nobody in vain but those who needed the blocks, and what is kept is right."""
    assert engine.outputs == wanted(count)
    assert set(engine.finished.values()) == {"length"}
    faults = engine.participants[-1].faults
    assert faults.count and told in faults.last
    engine.shelf.check(engine, [INNOCENT + engine.outputs[9], *(PROMPTS[i] + engine.outputs[i] for i in range(count))])


@pytest.mark.covers("KV-03")
@ways
@depths
@pytest.mark.parametrize("apart", [0, 1, 2], ids=["in one step", "one step apart", "two steps apart"])
def test_a_load_that_fails_is_computed(make, caplog, depth, apart, spoil, sound, told):
    engine = make(depth)
    spoil(engine)
    row = next(iter(engine.scheduler.running.values())).row
    for i in range(4):
        engine.add(i, PROMPTS[i], max_tokens=8)
        for _ in range(apart):
            engine.advance()
    before = engine.rows.epoch[row]
    until(engine, 9, lambda: engine.rows.epoch[row] == before)
    engine.run()
    check(engine, 4, told)
    assert engine.cached[0] == sound * 4
    assert "KV connector 'shelf' (acme 1.0)" in caplog.text and told in caplog.text


@depths
def test_only_the_loads_that_failed_are_computed(make, depth):
    engine, other = make(depth), [60, *PREFIX]
    engine.shelf.put(engine, other[:40])
    misses(3)(engine)
    engine.add(0, PROMPTS[0], max_tokens=8)
    engine.add(1, other, max_tokens=8)
    engine.advance()
    row = engine.scheduler.requests[1].row
    before = engine.rows.epoch[row]
    until(engine, 1, lambda: engine.rows.epoch[row] == before)
    engine.run()
    assert engine.outputs == {**wanted(1), 1: generate(other, 8, VOCAB)}
    assert (engine.cached[0], engine.cached[1]) == (3 * 4, 10 * 4)


@ways
@depths
def test_whoever_ordered_it_may_have_gone(make, depth, spoil, sound, told):
    engine = make(depth)
    spoil(engine)
    engine.add(0, PROMPTS[0], max_tokens=8)
    engine.advance()
    for i in (1, 2):
        engine.add(i, PROMPTS[i], max_tokens=8)
    if depth == 2:
        engine.advance()
    if 0 in engine.scheduler.requests and engine.loop.inflight:
        engine.abort(0)
        engine.outputs[0] = wanted(1)[0]
    engine.run()
    check(engine, 3, told)


@depths
@pytest.mark.parametrize("when", range(4))
def test_a_request_that_gave_way_in_between_is_computed_as_well(make, depth, when):
    """Its sampled token is in flight, and worth nothing."""
    engine = make(depth)
    raises(engine)
    engine.add(0, PROMPTS[0], max_tokens=8)
    for turn in range(4):
        engine.advance()
        if turn == when and engine.scheduler.requests[0] in engine.scheduler.running.values():
            engine.scheduler.preempt(engine.scheduler.requests[0])
    engine.run()
    check(engine, 1, "begin() raised OSError")


@depths
def test_a_request_that_comes_back_keeps_what_it_said(make, depth):
    """Preempted after some tokens, it is to find its beginning in the store, which is away by then."""
    engine = make(depth)
    engine.add(0, PROMPTS[0], max_tokens=8)
    for _ in range(5 + depth):
        engine.advance()
    assert engine.outputs[0]
    engine.scheduler.preempt(engine.scheduler.requests[0])
    engine.pool.forget_all()
    raises(engine)
    engine.run()
    check(engine, 1, "begin() raised OSError")
    assert engine.cached[0] == 40, "as it was when it came"


@depths
def test_after_repeated_faults_its_worker_half_is_closed(make, caplog, depth):
    engine = make(depth)
    raises(engine)
    plans = []
    launch = engine.executor.launch
    engine.loop._submit = lambda plan: plans.append(plan) or launch(plan)
    for i in range(4):
        engine.add(i, PROMPTS[i], max_tokens=8)
        engine.run()
        engine.pool.forget_all()  # so that the connector is asked again
    check(engine, 4, "begin() raised OSError")
    assert engine.participants[-1].faults.off and engine.participants[-1].faults.count == 3
    assert "CORE-P162 KV connector 'shelf' (acme 1.0) is switched off" in caplog.text
    assert [plan.leaving for plan in plans if plan.leaving] == [["shelf"]]
    assert sum(1 for plan in plans if plan.loads) == 3


def test_what_was_computed_on_loads_is_offered_once_they_have_come(make):
    engine = make(1)
    engine.add(0, PROMPTS[0], max_tokens=8)
    engine.advance()
    kept = set(engine.shelf.kept)
    engine.run()
    engine.shelf.check(engine, [INNOCENT + engine.outputs[9], PROMPTS[0] + engine.outputs[0]])
    text = np.array([*PROMPTS[0], *engine.outputs[0]], np.int32)
    hashes = []
    engine.hasher.extend(hashes, engine.hasher.root(), text)
    assert set(hashes[10:13]) <= set(engine.shelf.kept) - kept, "its own blocks behind those that were loaded"


def test_a_save_that_fails_hurts_nobody(make):
    engine = make()
    engine.shelf.end = fail
    engine.add(0, PROMPTS[0], max_tokens=8)
    engine.run()
    check(engine, 1, "end() raised OSError: the store is away")
    assert len(engine.shelf.kept) == 10
