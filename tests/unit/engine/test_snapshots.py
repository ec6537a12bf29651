"""Snapshots of recurrent states: where prefix hits end, where prompts are cut, which snapshot gives way."""

from __future__ import annotations

import numpy as np
import pytest

from core.engine.rows import RequestTable
from core.engine.snapshots import Snapshots
from core_testing.arithmetic import generate

RECURRENT = {"snapshots": 16, "interval": 8}
TEXT = [5, 1, 4, 2, 3, 0, 6, 7, 9, 8, 11, 10, 13, 12, 15, 14, 17, 16, 19, 18, 21, 20, 23, 22, 25, 24, 27, 26]


def answer(prompt, count=6):
    return generate(prompt, count, 97, recurrent=True)


def served(engine, handle, prompt, count=6):
    engine.add(handle, prompt, max_tokens=count)
    engine.run()
    assert engine.outputs[handle] == answer(prompt, count)
    return engine.cached[handle]


@pytest.mark.covers("ATTN-11")
def test_a_hit_reaches_as_far_as_the_last_snapshot(harness):
    engine = harness(**RECURRENT)
    assert served(engine, 0, TEXT) == 0
    # 28 tokens are seven blocks of four; the state was kept behind 8, 16 and 24 of them, and of the answer behind 32.
    assert served(engine, 1, TEXT) == 24
    assert served(engine, 2, [*TEXT[:20], 90, 91]) == 16
    assert served(engine, 3, [*TEXT[:7], 90, 91]) == 0
    assert served(engine, 4, [*TEXT, *answer(TEXT), 90]) == 32


@pytest.mark.covers("ATTN-11")
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_what_is_sampled_has_snapshots_once_its_tokens_are_known(harness, depth):
    engine = harness(**RECURRENT, depth=depth)
    prompt = TEXT[:6]
    served(engine, 0, prompt, 34)
    assert served(engine, 1, [*prompt, *answer(prompt, 34)]) == 32


@pytest.mark.covers("ATTN-11")
def test_prompts_run_in_chunks_that_end_at_snapshots(harness):
    engine = harness(**RECURRENT, max_chunk=13, depth=0)
    engine.add(0, TEXT, max_tokens=1)
    ends = []
    for _ in range(4):
        step = engine.scheduler.schedule()
        ends.append(int(step.plan.starts[0] + step.plan.counts[0]))
        engine.loop.settler.settle(step, engine.executor.launch(step.plan).result())
    assert ends == [8, 16, 24, 28]


@pytest.mark.covers("ATTN-11")
def test_the_least_recently_used_snapshot_gives_way(harness):
    engine = harness(snapshots=2, interval=8)
    prompts = [[base] * 9 for base in range(3)]
    served(engine, 0, prompts[0], 1)
    served(engine, 1, prompts[1], 1)
    assert served(engine, 2, prompts[0], 1) == 8  # used again: now the other one is the oldest
    served(engine, 3, prompts[2], 1)
    assert served(engine, 4, prompts[0], 1) == 8
    assert served(engine, 5, prompts[1], 1) == 0


@pytest.mark.covers("ATTN-11")
def test_what_a_failed_row_has_left_is_not_found(harness):
    engine = harness(**RECURRENT, depth=0)
    engine.add(0, TEXT, max_tokens=2)
    step = engine.scheduler.schedule()
    result = engine.executor.launch(step.plan).result()
    result.errors[0] = "not a number"
    engine.loop.settler.settle(step, result)
    assert served(engine, 1, TEXT) == 0


@pytest.mark.covers("ATTN-11")
def test_nothing_is_found_once_the_cache_is_forgotten(harness):
    engine = harness(**RECURRENT)
    served(engine, 0, TEXT)
    engine.scheduler.forget_cache()
    engine.scheduler.check()
    assert served(engine, 1, TEXT) == 0


def test_a_plan_of_a_model_without_states_has_no_copies(harness):
    engine = harness(depth=0)
    engine.add(0, TEXT, max_tokens=2)
    assert engine.scheduler.schedule().plan.states is None


def test_an_interval_is_of_whole_blocks():
    with pytest.raises(ValueError, match="not of whole blocks of 4"):
        Snapshots(RequestTable(2, 16, 4), 3, 6)


def test_a_slot_in_two_places_is_noticed():
    states = Snapshots(RequestTable(2, 16, 4), 3, 4)
    states.check()
    states.forget_all()
    states._free.pop()
    with pytest.raises(RuntimeError, match="slots of snapshots"):
        states.check()


def test_no_chunk_passes_a_multiple_of_the_interval():
    states = Snapshots(RequestTable(2, 64, 4), 3, 8)
    found = states.cut(np.array([0, 0, 3, 8, 7]), np.array([20, 7, 30, 3, 1]))
    assert found.tolist() == [8, 7, 5, 3, 1]
