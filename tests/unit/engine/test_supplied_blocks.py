"""Blocks that a KV connector supplied: loaded once, found by everybody, and by nobody if the load fails."""

from __future__ import annotations

import pytest

from core_testing.arithmetic import generate

VOCAB = 97
PREFIX = [i * 5 % VOCAB for i in range(40)]  # ten blocks of four


def prompts(count):
    return [[*PREFIX, 90 - i] for i in range(count)]


@pytest.fixture
def engine(harness):
    """An engine whose connector holds the prefix."""
    engine = harness(shelved=True, blocks=128)
    engine.shelf.put(engine, PREFIX)
    return engine


@pytest.mark.covers("KV-03")
@pytest.mark.parametrize("apart", [0, 1, 100], ids=["in one step", "in consecutive steps", "one after the other"])
def test_four_requests_load_a_stored_prefix_once(engine, apart):
    for i, prompt in enumerate(prompts(4)):
        engine.add(i, prompt, max_tokens=3)
        for _ in range(apart):
            engine.advance()
        assert engine.shelf.loaded == (10 if apart else 0)
    assert engine.run() == {i: generate(prompt, 3, VOCAB) for i, prompt in enumerate(prompts(4))}
    assert engine.shelf.loaded == 10
    assert engine.cache.hits == 4 * 40
    assert engine.worker.computed_tokens == 4 * (1 + 2)


def test_only_what_the_prefix_cache_lacks_is_loaded(engine):
    engine.add(0, PREFIX[:21], max_tokens=1)
    engine.run()
    assert engine.shelf.loaded == 5
    engine.add(1, prompts(1)[0], max_tokens=3)
    assert engine.run()[1] == generate(prompts(1)[0], 3, VOCAB)
    assert engine.shelf.loaded == 10


def test_an_abort_while_the_load_runs_leaves_the_blocks_to_others(engine):
    engine.add(0, prompts(1)[0], max_tokens=3)
    engine.advance()  # launched, and not run before its result is asked for
    engine.abort(0)
    engine.add(1, prompts(2)[1], max_tokens=3)
    assert engine.run()[1] == generate(prompts(2)[1], 3, VOCAB)
    assert engine.shelf.loaded == 10


def test_a_preempted_request_finds_what_was_loaded_for_it(engine):
    engine.add(0, prompts(1)[0], max_tokens=6)
    engine.advance()
    engine.scheduler.preempt(next(iter(engine.scheduler.running.values())))
    assert engine.run()[0] == generate(prompts(1)[0], 6, VOCAB)
    assert (engine.scheduler.preemptions, engine.shelf.loaded) == (1, 10)


@pytest.mark.parametrize("aborted", [False, True])
def test_a_load_that_fails_ends_whoever_counted_on_it(engine, aborted):
    """The second request is launched on top of the first one's blocks before that step is known to have failed."""
    engine.shelf.broken = {0}
    kept = dict(engine.shelf.kept)
    engine.add(0, prompts(1)[0], max_tokens=3)
    engine.advance()
    if aborted:
        engine.abort(0)
    engine.add(1, prompts(2)[1], max_tokens=3)
    engine.run()
    assert engine.finished == ({1: "error"} if aborted else {0: "error", 1: "error"})
    assert engine.outputs == {0: [], 1: []}
    engine.shelf.kept = kept
    engine.add(2, prompts(3)[2], max_tokens=3)
    assert engine.run()[2] == generate(prompts(3)[2], 3, VOCAB)
    assert engine.shelf.loaded == 20


@pytest.mark.parametrize("preempted", [False, True])
def test_a_forward_pass_that_fails_ends_whoever_counted_on_it(harness, preempted):
    engine = harness(shelved=True, blocks=128)
    engine.shelf.broken = {0}
    engine.add(0, prompts(1)[0], max_tokens=3)
    engine.advance()
    engine.add(1, prompts(2)[1], max_tokens=3)
    engine.add(2, [1, 2, 3], max_tokens=3)  # shares nothing
    if preempted:
        step = engine.scheduler.schedule()
        engine.loop._inflight.append((step, engine.executor.launch(step.plan)))
        engine.scheduler.preempt(list(engine.scheduler.running.values())[1])
    engine.run()
    assert engine.finished == {0: "error", 1: "error", 2: "length"}
    assert engine.outputs == {0: [], 1: [], 2: generate([1, 2, 3], 3, VOCAB)}
    engine.add(3, prompts(4)[3], max_tokens=3)
    assert engine.run()[3] == generate(prompts(4)[3], 3, VOCAB)
