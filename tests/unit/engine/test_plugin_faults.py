"""Policies and connectors that fail: every request still gets its tokens, and the log says whose fault it was."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from core.engine.participants.stages import MOST_STATS
from core.engine.policy import GuardedPolicy
from core.plugins.faults import LIMIT
from core_testing.arithmetic import generate

VOCAB = 97
PREFIX = [i * 5 % VOCAB for i in range(40)]  # ten blocks of four


def fail(*given, **named):
    raise KeyError("boom")


def wanted(prompts, count=6):
    return {i: generate(prompt, count, VOCAB) for i, prompt in enumerate(prompts)}


def run(engine, prompts, count=6):
    for i, prompt in enumerate(prompts):
        engine.add(i, prompt, max_tokens=count)
    return engine.run()


class Policy:
    """A policy as it should be."""

    def key(self, request):
        return (request.arrival,)

    def victim(self, running):
        return len(running) - 1

    def may_admit(self, request, state):
        return True

    def chunk(self, request, budget):
        return budget


@pytest.mark.parametrize(
    ("method", "answer", "told"),
    [
        ("key", fail, "key() raised KeyError: 'boom'"),
        ("key", lambda request: 3, "key() raised TypeError"),
        ("key", lambda request: ("late",), "key() raised TypeError"),
        ("key", lambda request: (float("nan"),), "cannot be sorted"),
        ("victim", fail, "victim() raised KeyError: 'boom'"),
        ("victim", lambda running: 99, "99 is none of the"),
        ("victim", lambda running: -1, "-1 is none of the"),
        ("victim", lambda running: None, "victim() raised TypeError"),
        ("may_admit", fail, "may_admit() raised KeyError: 'boom'"),
        ("chunk", fail, "chunk() raised KeyError: 'boom'"),
        ("chunk", lambda request, budget: "all", "chunk() raised TypeError"),
    ],
)
def test_a_policy_that_fails_is_first_come_first_served(harness, faulty, caplog, method, answer, told):
    policy = Policy()
    setattr(policy, method, answer)
    faults = faulty("core.schedulers")
    prompts = [[i + 1] * 9 for i in range(6)]
    engine = harness(policy=GuardedPolicy(policy, faults), blocks=12, budget=16)  # so few that somebody gives way
    assert run(engine, prompts, 12) == wanted(prompts, 12)
    assert engine.started == list(range(6)), "in the order of arrival"
    assert faults.count and told in faults.last and not faults.off
    assert "CORE-P161 scheduling policy 'odd' (acme 1.0): " in caplog.text and told in caplog.text


def test_a_sound_policy_has_no_faults(harness, faulty):
    faults = faulty("core.schedulers")
    prompts = [[i + 1] * 9 for i in range(6)]
    assert run(harness(policy=GuardedPolicy(Policy(), faults), blocks=12), prompts, 12) == wanted(prompts, 12)
    assert faults.count == 0


@pytest.fixture
def engine(harness):
    """An engine whose connector holds the prefix."""
    engine = harness(shelved=True, blocks=128)
    engine.shelf.put(engine, PREFIX)
    return engine


PROMPTS = [[*PREFIX, 90 - i] for i in range(4)]


@pytest.mark.parametrize(
    ("method", "answer", "told"),
    [
        ("match", fail, "match() raised KeyError: 'boom'"),
        ("match", lambda hashes, local_blocks: "many", "match() raised TypeError"),
        ("load", fail, "load() raised KeyError: 'boom'"),
        ("save", fail, "save() raised KeyError: 'boom'"),
        ("observe", fail, "observe() raised KeyError: 'boom'"),
    ],
)
def test_a_connector_that_fails_is_a_miss_and_then_switched_off(engine, caplog, method, answer, told):
    setattr(engine.shelf, method, answer)
    engine.worker.execute = reporting(engine.worker.execute)
    faults = engine.participants[-1].faults
    prompts = [[*prompt, *range(3, 12)] for prompt in PROMPTS]
    for i, prompt in enumerate(prompts):
        engine.add(i, prompt, max_tokens=9)
        engine.run()
        engine.scheduler.pool.forget_all()  # so that the connector is asked again
    assert engine.outputs == wanted(prompts, 9)
    assert faults.count >= LIMIT and faults.off and told in faults.last
    assert "CORE-P161 KV connector 'shelf' (acme 1.0): " in caplog.text and told in caplog.text
    assert "CORE-P162 KV connector 'shelf' (acme 1.0) is switched off" in caplog.text
    counted = faults.count
    assert run(engine, [[7] * 9]) == {**engine.outputs, 0: generate([7] * 9, 6, VOCAB)}
    assert faults.count == counted, "it is asked no more"


def reporting(execute):
    """Return `execute` with a report of the connector's worker half in every result."""

    def done(plan):
        result = execute(plan)
        result.parts["shelf"] = b"done"
        return result

    return done


@pytest.mark.parametrize("found", [-3, 10**9])
def test_a_count_out_of_range_supplies_what_there_is(engine, found):
    engine.shelf.match = lambda hashes, local_blocks: found
    assert run(engine, PROMPTS) == wanted(PROMPTS)
    assert engine.shelf.loaded == (10 if found > 0 else 0)


def test_an_order_that_fails_half_way_is_computed_instead(engine):
    plain = engine.shelf.load

    def load(blocks):
        plain(blocks[:3])
        raise OSError("the store is away")

    engine.shelf.load = load
    assert run(engine, PROMPTS) == wanted(PROMPTS)
    assert engine.worker.computed_tokens >= len(PREFIX)


def test_without_its_message_nothing_is_missing_if_nothing_was_ordered(engine):
    innocent = [5, 6, 7]
    engine.add(9, innocent, max_tokens=8)
    for _ in range(3):
        engine.advance()
    engine.shelf.plan_step = fail
    assert run(engine, [[8] * 9])[0] == generate([8] * 9, 6, VOCAB)
    assert engine.run()[9] == generate(innocent, 8, VOCAB)
    assert engine.participants[-1].faults.off


@pytest.mark.parametrize("found", [fail, lambda: {"kept": "many"}, lambda: {"kept": 2**63}, lambda: {"kept": 0.5}])
def test_figures_that_cannot_be_told_are_left_out(engine, found):
    engine.shelf.stats = found
    assert engine.participants[-1].stats() == {}
    assert "stats() raised " in engine.participants[-1].faults.last


def test_figures_are_plain_integers_and_not_without_end(engine):
    engine.shelf.stats = lambda: {f"size_{number}": np.int64(number) for number in range(1000)}
    found = engine.scheduler.stages.stats()["shelf"]
    assert found == {f"size_{number}": number for number in range(MOST_STATS)}
    assert {type(value) for value in found.values()} == {int}


def test_a_connector_that_cannot_forget_is_switched_off_at_once(engine):
    engine.shelf.reset = fail
    engine.scheduler.forget_cache()
    assert engine.participants[-1].faults.off
    assert run(engine, PROMPTS) == wanted(PROMPTS) and engine.shelf.loaded == 0


def test_figures_that_fail_are_left_out(engine):
    engine.shelf.stats = fail
    assert engine.participants[-1].stats() == {}
    assert "stats() raised" in engine.participants[-1].faults.last


def test_faults_are_warned_about_ever_less_often(faulty, caplog):
    faults = faulty("core.schedulers")
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            faults.note("key() raised KeyError")
    assert len(caplog.records) == 10 and faults.count == 1000
    assert faults.to_dict() == {
        "group": "core.schedulers",
        "name": "odd",
        "distribution": "acme",
        "version": "1.0",
        "faults": 1000,
        "last": "key() raised KeyError",
        "switched_off": False,
    }
