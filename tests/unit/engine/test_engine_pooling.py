"""Pooling requests in the scheduler: whole prompts, one step, nothing sampled."""

import numpy as np
import pytest
from core_plugin_pool.engine import Pool, Pooled, Pooling, Vector

from core.api.errors import EngineError
from core.api.sampling_params import SamplingParams
from core.api.steps import StepResult
from core.api.tasks import TaskSetup
from core.api.wire import restored
from core.engine.blocks import BlockPool
from core.engine.hashing import BlockHasher
from core.engine.messages import Add
from core.engine.prefix import PrefixCache
from core.engine.request import Request
from core.engine.rows import RequestTable
from core.engine.scheduler import Scheduler
from core.engine.settle import Settler
from core.engine.step_budget import Limits

BLOCK = 4


class Fcfs:
    def key(self, request):
        return (request.arrival,)

    def victim(self, running):
        return len(running) - 1


class Engine:
    """A scheduler with its settler; `run` answers a step with the sum of each prompt as its vector."""

    def __init__(self, *, longest=16, budget=16, blocks=32, rows=4):
        self.hasher = BlockHasher(BLOCK)
        rows_ = RequestTable(rows, longest, BLOCK)
        cache = PrefixCache(BlockPool(blocks), self.hasher, enabled=True)
        limits = Limits(rows, budget, max_chunk=3, max_model_len=longest)
        self.scheduler = Scheduler(limits, rows_, cache, Fcfs(), task=Pool(TaskSetup()))
        self.settler = Settler(self.scheduler)
        self.arrivals = 0

    def add(self, length, method="mean", *, second=0):
        handle = self.arrivals + 1
        message = Add(
            handle=handle,
            prompt=np.arange(1, length + 1, dtype="<i4").tobytes(),
            params=SamplingParams(max_tokens=1),
            task="pool",
            parts={"pool": Pooling(method, second)},
        )
        request = Request(message, self.arrivals, self.hasher.root())
        self.arrivals += 1
        self.scheduler.add(request)
        return request

    def run(self, *, errors=()):
        step = self.scheduler.schedule()
        if step is None:
            return None, None
        plan = step.plan
        vectors = {
            index: np.array([plan.counts[index], plan.starts[index]], np.float32)
            for index in np.flatnonzero(plan.samples).tolist()
            if index not in errors
        }
        outputs = self.settler.settle(step, pooled(plan.number, vectors, dict.fromkeys(errors, "broken")))
        self.scheduler.check()
        return plan, outputs


def pooled(number, vectors, errors):
    return StepResult(number, np.zeros(0, np.int32), errors=errors, parts={"pool": Pooled(vectors)})


def vectors_of(outputs):
    """Return handle -> vector of the requests that ended with one."""
    return {end.handle: restored(end.parts["pool"], Vector, "pool").array() for end in outputs.finished if end.parts}


def test_a_prompt_is_never_cut_whatever_chunks_are_wanted():
    engine = Engine()
    engine.add(16)
    plan, outputs = engine.run()
    assert plan.counts.tolist() == [16]
    assert plan.new_rows[0].parts == {"pool": Pooling("mean")}
    assert vectors_of(outputs)[1].tolist() == [16.0, 0.0]
    assert [(end.handle, end.reason) for end in outputs.finished] == [(1, "stop")]
    assert not outputs.tokens
    assert not engine.scheduler.has_work
    assert engine.scheduler.pool.used == 0


def test_what_does_not_fit_beside_others_waits_for_the_next_step():
    engine = Engine(budget=20)
    for length in (7, 9, 5, 16):
        engine.add(length)
    plan, outputs = engine.run()
    assert plan.counts.tolist() == [7, 9]  # 5 more would be 21
    assert sorted(vectors_of(outputs)) == [1, 2]
    assert engine.run()[0].counts.tolist() == [5]
    assert engine.run()[0].counts.tolist() == [16]
    assert engine.run() == (None, None)


def test_rows_and_blocks_bound_a_step_too():
    engine = Engine(budget=64, rows=2)
    for _ in range(3):
        engine.add(4)
    assert len(engine.run()[0].rows) == 2
    assert len(engine.run()[0].rows) == 1
    scarce = Engine(budget=64, blocks=6)
    for _ in range(2):
        scarce.add(12)
    assert len(scarce.run()[0].rows) == 1
    assert len(scarce.run()[0].rows) == 1


@pytest.mark.parametrize("length", [0, 17])
def test_prompts_of_impossible_length_are_refused(length):
    with pytest.raises(ValueError, match="1 to 16 are possible"):
        Engine().add(length)


def test_the_longest_prompt_may_fill_the_whole_cache():
    engine = Engine(blocks=5)  # four, and the null block
    engine.add(16)
    assert engine.run()[0].counts.tolist() == [16]


@pytest.mark.parametrize(("method", "cached"), [("last", 12), ("mean", 0), ("cls", 0), ("all", 0)])
def test_only_the_last_token_may_stand_on_a_cached_prefix(method, cached):
    engine = Engine()
    engine.add(16, "last")
    engine.run()
    engine.add(16, method)
    plan, outputs = engine.run()
    assert plan.starts.tolist() == [cached]
    assert [one.cached_tokens for one in outputs.started] == [cached]


def test_a_request_that_failed_or_was_aborted_gives_no_vector():
    engine = Engine(budget=64)
    first, second, third = engine.add(4), engine.add(5), engine.add(6)
    step = engine.scheduler.schedule()
    engine.scheduler.finish(second)  # aborted while its step runs
    vectors = {1: np.ones(2, np.float32), 2: np.ones(2, np.float32)}
    outputs = engine.settler.settle(step, pooled(0, vectors, {0: "broken"}))
    assert list(vectors_of(outputs)) == [third.handle]
    ends = {end.handle: (end.reason, end.error) for end in outputs.finished}
    assert ends == {first.handle: ("error", "broken"), third.handle: ("stop", None)}
    engine.scheduler.check()


@pytest.mark.parametrize("shape", [(3,), (4, 2), (0,)])
def test_vectors_travel_without_loss(shape):
    import msgspec

    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    sent = msgspec.msgpack.encode(Vector.of(array))
    np.testing.assert_array_equal(msgspec.msgpack.decode(sent, type=Vector).array(), array)


@pytest.mark.parametrize("shape", [[2], [-1], [-1, -1]], ids=repr)
def test_a_damaged_vector_is_told(shape):
    with pytest.raises(ValueError, match="came with 4 bytes"):
        Vector(shape, b"1234")
    with pytest.raises(EngineError, match="CORE-E184 a part 'pool' is no Vector"):
        restored([shape, b"1234"], Vector, "pool")


def test_a_request_that_does_not_say_how_it_is_pooled_is_refused():
    engine = Engine()
    message = Add(handle=1, prompt=bytes(4), params=SamplingParams(), task="pool")
    with pytest.raises(ValueError, match="no part 'pool'"):
        engine.scheduler.add(Request(message, 0, engine.hasher.root()))
