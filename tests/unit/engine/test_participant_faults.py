"""What goes wrong in one participant neither leaks into others nor into what requests are answered."""

from __future__ import annotations

import numpy as np
import pytest

from core.api.errors import PluginError
from core.api.participants import Participant, WorkerParticipant
from core.api.steps import BlockUpdate, StepPlan, StepResult
from core.engine.participants.stages import Stages
from core.worker.participants.stages import WorkerStages
from core_testing.arithmetic import generate

VOCAB = 97
NONE = np.zeros(0, np.int32)


class Plain(Participant):
    """Notes what it is told."""

    def __init__(self, name):
        self.name, self.told = name, []

    def arrive(self, request):
        self.told.append(f"arrive {request.handle}")

    def finish(self, request):
        self.told.append(f"finish {request.handle}")

    def close(self):
        self.told.append("close")


class Odd(Plain):
    def arrive(self, request):
        raise ValueError("no room")

    def close(self):
        raise OSError("gone")


class Supplier(Plain):
    """Promises the second block of every prompt and forgets it in the plan."""

    def __init__(self, name, fails=False):
        super().__init__(name)
        self.fails = fails

    def supply(self, request, hashes, local_blocks):
        return len(hashes) - local_blocks

    def place(self, request, supplied):
        return True

    def plan(self, plan):
        self.told.append(dict(plan.loads))
        if self.fails:
            raise RuntimeError("plan is broken")


class Filler(WorkerParticipant):
    def __init__(self, name):
        self.name = name


class Names(Filler):
    def begin(self, plan):
        return plan.loads[self.name][:1]

    def weights_replaced(self):
        raise OSError("gone")


def plan_of(loads):
    blocks = (BlockUpdate(NONE, NONE, NONE, NONE),)
    return StepPlan(0, [], blocks, NONE, NONE, NONE, NONE.astype(bool), NONE, loads=loads)


def test_who_heard_of_a_refused_request_hears_of_its_end(harness):
    first, last = Plain("first"), Plain("last")
    engine = harness(participants=(first, Odd("odd"), last))
    with pytest.raises(ValueError, match="no room"):
        engine.add(0, [1, 2, 3])
    assert first.told == ["arrive 0", "finish 0"] and last.told == ["finish 0"]
    assert not engine.scheduler.requests and not engine.loop.busy


def test_one_that_cannot_be_closed_keeps_nobody_open(caplog):
    last = Plain("last")
    Stages((Odd("odd"), last)).close()
    assert last.told == ["close"] and "participant 'odd': close() raised OSError: gone" in caplog.text


@pytest.mark.parametrize("fails", [False, True])
def test_blocks_that_were_ordered_are_in_the_plan_whatever_it_does(harness, faulty, fails):
    supplier = Supplier("odd", fails)
    engine = harness(participants=(supplier,), participant_faults={"odd": faulty("core.participants")})
    launch = engine.executor.launch

    def lose(plan):
        for block in (blocks := plan.loads.get("odd", [])):
            engine.worker.cache[block * 4 : block * 4 + 4] = -7
        pending = launch(plan)
        pending.result().lost = blocks
        return pending

    engine.loop._submit = lose
    prompt = list(range(1, 13))
    engine.add(0, prompt, max_tokens=5)
    assert engine.run()[0] == generate(prompt, 5, VOCAB)
    assert supplier.told[1]["odd"] and not supplier.told[-2]


@pytest.mark.parametrize(("half", "lost"), [(Filler, [3, 4]), (Names, [3])])
def test_what_nobody_fills_is_lost(half, lost):
    stages = WorkerStages([half("a")])
    plan = plan_of({"a": [3, 4]})
    assert stages.begin(plan) == lost
    stages.end(plan, StepResult(0, NONE))


def test_a_half_that_cannot_forget_old_weights_is_named():
    told = []
    last = Filler("b")
    last.weights_replaced = lambda: told.append("b")
    stages = WorkerStages([Names("a"), last], {"a": "participant 'a' (acme 1.0)"})
    with pytest.raises(PluginError, match=r"CORE-P108 participant 'a' \(acme 1.0\): weights_replaced\(\) raised"):
        stages.weights_replaced()
    assert told == ["b"]
