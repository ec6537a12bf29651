"""Steps in which many requests begin and end, which are the slowest ones: what they cost in counts."""

from __future__ import annotations

import numpy as np
import pytest

from core.engine.blocks import BlockPool
from core.engine.publishing import Publisher
from core.engine.scheduler import Scheduler

TOGETHER = 6


@pytest.fixture
def engine(harness):
    """Twice as many requests as rows; all those that run end in the same step, and the others begin in the next."""
    engine = harness(max_seqs=TOGETHER, depth=0, blocks=96)
    for handle in range(2 * TOGETHER):
        engine.add(handle, [handle + 1] * 9, max_tokens=5)
    return engine


def test_the_array_of_running_rows_is_made_once_a_step(engine, monkeypatch):
    made = []
    original = Scheduler._current_rows

    def current(self):
        before = self._running_rows
        rows = original(self)
        made.append(rows is not before)
        return rows

    monkeypatch.setattr(Scheduler, "_current_rows", current)
    while len(engine.finished) < 2 * TOGETHER:
        engine.advance()
        engine.scheduler.check()
    assert sum(made) <= 4  # the first six came, they left and six others came, those left


def test_rows_that_come_leave_and_come_again_between_two_steps_are_counted_once(engine):
    engine.advance()
    scheduler = engine.scheduler
    for handle in range(TOGETHER):
        engine.abort(handle)
    engine.advance()  # the second half takes their rows
    scheduler.check()
    first = next(iter(scheduler.running.values()))
    engine.abort(first.handle)
    engine.add(99, [7, 7, 7], max_tokens=3)
    engine.advance()
    scheduler.check()
    engine.run()
    assert len(engine.outputs[99]) == 3


def test_blocks_with_content_are_freed_in_one_go(monkeypatch):
    single = []
    original = BlockPool._link
    monkeypatch.setattr(BlockPool, "_link", lambda self, *args: (single.append(args), original(self, *args)))
    pool = BlockPool(12)
    blocks = pool.allocate(8)
    pool.publish(blocks[:6], [bytes([block]) for block in blocks[:6]])
    pool.release(blocks)
    assert len(single) == 2  # those without content, which go to the front
    pool.check([])
    # Without content first, then the end of the text before its beginning.
    order = pool.allocate(11)
    assert sorted(order[:5]) == sorted([*blocks[6:], 9, 10, 11]) and order[5:] == blocks[5::-1]


def test_a_prompt_of_many_blocks_is_published_without_arrays_of_one(engine, monkeypatch):
    calls = []
    original = Publisher.publish
    monkeypatch.setattr(
        Publisher, "publish", lambda self, rows, ends: (calls.append(len(rows)), original(self, rows, ends))
    )
    engine.advance()
    assert calls == [TOGETHER]
    rows = engine.scheduler.rows
    assert np.array_equal(rows.published[: engine.scheduler.rows.capacity], np.full(TOGETHER, 2))
