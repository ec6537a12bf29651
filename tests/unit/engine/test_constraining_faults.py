"""What goes wrong in a participant that constrains tokens ends the requests of that step, and nothing else."""

from __future__ import annotations

import pytest

from core.api.participants import Participant
from core_testing.arithmetic import generate

VOCAB = 97


class Brittle(Participant):
    """Raises at the third call of each moment that is named."""

    name = "odd"

    def __init__(self, moment):
        self._left = {moment: 3 if moment not in ("run", "finish") else 1}

    def _called(self, moment):
        self._left[moment] = self._left.get(moment, 0) - 1
        if not self._left[moment]:
            raise RuntimeError("out of order")

    def run(self, request):
        self._called("run")

    def plan(self, plan):
        self._called("plan")

    def collect(self, plan, result):
        self._called("collect")

    def settle(self, requests, tokens):
        self._called("settle")
        return {}

    def finish(self, request):
        self._called("finish")


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("moment", ["run", "plan", "collect", "settle"])
def test_the_requests_of_the_step_end_and_others_are_served(harness, faulty, moment, depth):
    faults = faulty("core.participants")
    engine = harness(
        participants=(Brittle(moment),),
        participant_faults={"odd": faults},
        constraining=frozenset({"odd"}),
        depth=depth,
    )
    first, second = list(range(1, 9)), list(range(20, 31))
    engine.add(0, first, max_tokens=8)
    engine.add(1, second, max_tokens=8)
    engine.run()
    told = f"CORE-P108 participant 'odd' (acme 1.0): {moment}() raised RuntimeError: out of order"
    assert engine.finished == {0: "error", 1: "error"}
    assert all(error.startswith(told) for error in engine.errors.values())
    assert generate(first, 8, VOCAB)[: len(engine.outputs[0])] == engine.outputs[0]
    assert faults.count == 1
    engine.add(2, first, max_tokens=8)
    engine.add(3, second, max_tokens=8)
    engine.run()
    assert engine.outputs[2] == generate(first, 8, VOCAB) and engine.outputs[3] == generate(second, 8, VOCAB)


@pytest.mark.parametrize("moment", ["run", "plan", "collect", "settle"])
def test_without_a_constraint_the_step_goes_on(harness, faulty, moment):
    engine = harness(participants=(Brittle(moment),), participant_faults={"odd": faulty("core.participants")})
    engine.add(0, [1, 2, 3], max_tokens=8)
    assert engine.run()[0] == generate([1, 2, 3], 8, VOCAB)


def test_an_end_that_fails_ends_nobody_else(harness, faulty):
    engine = harness(
        participants=(Brittle("finish"),),
        participant_faults={"odd": faulty("core.participants")},
        constraining=frozenset({"odd"}),
    )
    engine.add(0, [1, 2, 3], max_tokens=2)
    engine.add(1, [4, 5, 6], max_tokens=8)
    assert engine.run()[1] == generate([4, 5, 6], 8, VOCAB)
