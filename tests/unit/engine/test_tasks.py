"""A task that neither generates nor pools, over the arithmetic worker: the engine runs it without knowing it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from core_plugin_pool.engine import Pool, Pooling

from core.api.errors import EngineError, PluginError
from core.api.participants import Participant
from core.api.steps import StepPlan, StepResult
from core.api.tasks import Task, TaskSetup
from core.api.wire import MessageDecoder, encode_message, restored
from core.engine import assembly
from core.engine.inbound import Inbound
from core.engine.messages import Add, ToEngine
from core.engine.tasks import halves
from core.engine.tasks.generate import Generate
from core.plugins.catalog import Catalogue
from core.plugins.entry import Entry
from core.plugins.hooks import Hooks
from core.selection.participants import choose_participants
from core.selection.select import Selector
from core_testing.arithmetic import ArithmeticWorker


@dataclass
class Divisor:
    """What a request asks for: how many of its tokens this number divides."""

    number: int


@dataclass
class Counted:
    """What a step gave: places in the plan, and the count of each."""

    places: np.ndarray
    counts: np.ndarray


class Count(Task):
    """Runs a prompt in chunks, and ends with how many of its tokens a number divides."""

    name = "count"
    part = Divisor

    def settle(self, settler, step, alive, result, outputs):
        counted = restored(result.parts[self.name], Counted, self.name)
        for place, count in zip(counted.places.tolist(), counted.counts.tolist(), strict=True):
            if alive[place]:
                settler.end(int(step.plan.rows[place]), outputs, count)


class CountingWorker(ArithmeticWorker):
    """Counts in what the KV cache holds, so that a wrong block or a lost chunk changes the count.

    Args:
        distant: Plans and results travel as bytes, as to a worker in another process.
    """

    def __init__(self, *sizes, distant=False):
        super().__init__(*sizes)
        self._distant, self._numbers = distant, {}

    def execute(self, plan, late=None):
        if self._distant:
            plan = MessageDecoder(StepPlan).decode(encode_message(plan))
        if not len(plan.rows):
            return StepResult(plan.number, np.zeros(0, np.int32))
        self._numbers.update((new.row, restored(new.parts["count"], Divisor, "count").number) for new in plan.new_rows)
        super().execute(plan, late)
        places = np.flatnonzero(plan.samples)
        counts = [self._count(int(plan.rows[i]), int(plan.starts[i] + plan.counts[i])) for i in places]
        result = StepResult(plan.number, np.zeros(0, np.int32), parts={"count": Counted(places, np.array(counts, int))})
        return MessageDecoder(StepResult).decode(encode_message(result)) if self._distant else result

    def _count(self, row, length):
        return int((self.cache[self._slots(0, row, 0, length)] % self._numbers[row] == 0).sum())


@pytest.fixture
def counting(harness):
    """Return an engine that counts, with a worker beside it or as if in another process."""

    def make(*, distant=False, **sizes):
        engine = harness(task=Count(TaskSetup()), **sizes)
        sizes = engine.blocks, engine.block_size, engine.max_seqs, engine.max_len, engine.worker.vocab_size
        engine.executor.worker = engine.worker = CountingWorker(*sizes, distant=distant)
        return engine

    return make


@pytest.mark.parametrize("distant", [False, True], ids=["beside", "distant"])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_prompt_in_chunks_ends_with_its_count(counting, depth, distant):
    engine = counting(distant=distant, depth=depth, max_chunk=5, budget=12, prefix=False)
    for handle, length in enumerate((17, 3, 40)):
        engine.add(handle, range(length), parts={"count": Divisor(2 + handle)})
    engine.run()
    assert engine.parts == {0: {"count": 9}, 1: {"count": 1}, 2: {"count": 10}}
    assert set(engine.finished.values()) == {"stop"}
    assert engine.worker.computed_tokens == 60 and engine.executor.launched >= 8
    assert not any(engine.outputs.values())
    assert engine.pool.used == 0


def test_a_prompt_may_fill_the_longest_request_and_the_whole_cache(counting):
    engine = counting(max_len=16, blocks=5)
    engine.add(0, range(16), parts={"count": Divisor(1)})
    engine.run()
    assert engine.parts[0] == {"count": 16}
    for length in (0, 17):
        with pytest.raises(ValueError, match="1 to 16 are possible"):
            engine.add(length, range(length))


def test_a_step_that_a_participant_needs_has_no_result_of_the_task(counting):
    class Impatient(Participant):
        """Wants one step of its own before anybody runs."""

        def __init__(self):
            self.numbers = []

        def admit(self, request):
            return bool(self.numbers)

        def pending(self):
            return not self.numbers

        def plan(self, plan):
            self.numbers.append((plan.number, len(plan.rows)))

    impatient = Impatient()
    engine = counting(participants=(impatient,), depth=0)
    engine.add(0, range(5), parts={"count": Divisor(1)})
    engine.run()
    assert impatient.numbers == [(0, 0), (1, 1)] and engine.parts == {0: {"count": 5}}


def test_the_last_token_of_a_request_takes_no_block(harness):
    engine = harness(blocks=5)  # four, and the null block: 16 tokens
    engine.add(0, range(8), max_tokens=9)
    engine.run()
    assert len(engine.outputs[0]) == 9 and engine.scheduler.preemptions == 0
    with pytest.raises(ValueError, match="may need 5 KV blocks, the whole cache has 4"):
        engine.add(1, range(8), max_tokens=10)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_between_the_count_is_exact(counting, seed):
    """Shared prefixes, blocks that are short, requests that are aborted."""
    rng = random.Random(seed)
    engine = counting(blocks=rng.choice([9, 14]), max_len=32, max_chunk=7, budget=rng.choice([8, 24]), depth=seed % 3)
    wanted = {}
    for handle in range(30):
        prompt = [*range(rng.choice([0, 4, 12])), *(rng.randrange(90) for _ in range(rng.randrange(1, 20)))]
        number = rng.randrange(1, 5)
        engine.add(handle, prompt, parts={"count": Divisor(number)})
        wanted[handle] = {"count": sum(token % number == 0 for token in prompt)}
        for _ in range(rng.randrange(3)):
            engine.advance()
        if rng.random() < 0.2 and handle in engine.scheduler.requests:
            engine.abort(handle)
            del wanted[handle]
    engine.run()
    assert engine.parts == wanted
    assert sum(engine.cached.values())


def test_requests_of_a_step_that_the_task_fails_at_end_and_the_engine_goes_on(counting, monkeypatch):
    engine = counting(prefix=False, max_seqs=2)
    broken = [True]
    settle = Count.settle

    def failing(self, *given):
        if broken.pop() if broken else False:
            raise KeyError("odd")
        settle(self, *given)

    monkeypatch.setattr(Count, "settle", failing)
    for handle in range(3):
        engine.add(handle, range(6), parts={"count": Divisor(2)})
    engine.run()
    assert engine.finished == {0: "error", 1: "error", 2: "stop"} and engine.parts[2] == {"count": 3}
    assert engine.pool.used == 0


# -- how an engine knows its task --------------------------------------------------------------------------------------


def test_core_has_one_task_and_plugins_the_others():
    half = halves.engine_half(SimpleNamespace(task="generate"), None)
    assert isinstance(half, Generate) and half.name == "generate"
    assert dict(halves.OWN) == {"generate": Generate}
    plan = SimpleNamespace(name="pool", owner="'pool' (a 1)", options={})
    active = SimpleNamespace(planned=lambda group: plan, make=lambda planned, setup: Pool(setup))
    config = SimpleNamespace(task="pool", task_data={"bidirectional": True})
    assert isinstance(found := halves.engine_half(config, active), Pool) and not found.shares_prefixes
    config.task = "count"
    with pytest.raises(PluginError, match=r"CORE-P160 task 'pool' .*is called 'pool', not 'count'"):
        halves.engine_half(config, active)


@pytest.mark.parametrize("part", [Divisor(3), {"number": 3}], ids=["beside", "distant"])
def test_a_part_arrives_as_its_type(part):
    added = Add(handle=1, prompt=b"", params={}, task="count", parts={"count": part})
    added.parts["count"] = restored(added.parts["count"], Count.part, "count")
    assert added.parts["count"] == Divisor(3)


def test_a_part_of_a_pooling_request_arrives_whole(message_of):
    asked = Pooling("all", second=3)
    sent = message_of(task="pool", parts={"pool": asked})
    received = Inbound(ToEngine).read(encode_message(sent))
    assert received.task == "pool" and restored(received.parts["pool"], Pooling, "pool") == asked


@pytest.fixture
def message_of():
    from core.api.sampling_params import SamplingParams

    return lambda **fields: Add(handle=1, prompt=bytes(4), params=SamplingParams(), **fields)


def test_a_part_that_no_task_of_the_engine_declares_is_refused():
    with pytest.raises(EngineError, match="CORE-E184 a part 'generate' is no part"):
        restored({}, Generate.part, "generate")


@pytest.mark.parametrize(
    ("task", "names"), [(Generate(), ["structured"]), (Pool(TaskSetup()), []), (Count(TaskSetup()), [])]
)
def test_what_constrains_tokens_takes_part_where_tokens_are_sampled(task, names):
    value = "core_plugin_structured.manifest:STRUCTURED"
    entry = Entry("core.participants", "structured", "core-plugin-structured", "0.1.0", value)
    selector = Selector(Catalogue([entry]), Hooks())
    assert [one.entry.name for one in choose_participants(selector, [], "cpu", task.name)] == names


def test_a_participant_called_like_the_task_is_refused(monkeypatch):
    class Pooler(Participant):
        name = "pool"

        def __init__(self): ...

    monkeypatch.setattr(assembly, "_connectors", lambda setup: [Pooler()])
    setup = SimpleNamespace(config=None, active=SimpleNamespace(impls=lambda group: ()), task=Pool(TaskSetup()))
    with pytest.raises(PluginError, match="CORE-P182 a participant is called 'pool'"):
        assembly.engine_stages(setup)
