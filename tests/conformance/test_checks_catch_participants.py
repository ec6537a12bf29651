"""Each participant check finds the participant that is wrong in its way."""

from __future__ import annotations

import pytest

from core_testing.conformance import Level

MANIFEST = """
from core.api import ParticipantSpec

SPEC = ParticipantSpec(
    name="broken",
    impl="PKG.engine:Engine",
    worker_impl="PKG.worker:Worker",
    parts="PKG.parts:PARTS",
    api=1,
    summary="s",
    {asks}
)
"""

SHARED = """
import msgspec
import numpy as np
from core.api import AllowedTokens, Parts

class Rows(msgspec.Struct):
    rows: np.ndarray

class Count(msgspec.Struct):
    count: int

PARTS = Parts(plan={plan_type}, result=Count{late_type})
"""

# Two requests at a time; the worker half counts the rows that it is told of.
ENGINE = """
from core.api import AllowedTokens, Participant
from PKG.parts import Count, Rows

class Engine(Participant):
    def __init__(self, setup):
        super().__init__(setup)
        self.held, self.first, self.counted, self.asked = set(), None, 0, 0

    def admit(self, request):
        {admit}
        return len(self.held) < 2

    def run(self, request):
        self.held.add(request.handle)

    def leave(self, request):
        {leave}

    def finish(self, request):
        {finish}

    def plan(self, plan):
        plan.parts[self.name] = {part}

    {moments}

    def collect(self, plan, result):
        self.counted += result.parts[self.name].count

    def reset(self):
        {reset}

    def calls(self):
        return {calls}

    def stats(self):
        return {stats}

    def close(self):
        {close}
"""

WORKER = """
from core.api import WorkerParticipant
from PKG.parts import Count

class Worker(WorkerParticipant):
    def begin(self, plan):
        self.count = len(plan.parts[self.name].rows)

    def sampled(self, step):
        {sampled}

    def end(self, plan, result):
        result.parts[self.name] = {result}
"""

PARTS = {
    "asks": "",
    "plan_type": "Rows",
    "late_type": "",
    "admit": "pass",
    "leave": "self.held.discard(request.handle)",
    "finish": "self.held.discard(request.handle)",
    "part": "Rows(plan.rows.copy())",
    "moments": "",
    "reset": "pass",
    "calls": '{"held": lambda: len(self.held)}',
    "stats": '{"held": len(self.held)}',
    "close": "pass",
    "sampled": "pass",
    "result": "Count(self.count)",
}

CASES = {
    "halves_fit_the_contract": {"moments": "def settel(self, requests, tokens): return {}"},
    "what_it_asks_core_for_is_there": {"asks": "settings=('api_key',)"},
    "parts_are_typed": {"plan_type": "'Rows'"},
    "nothing_goes_wrong": {"result": "{'count': 1}"},
    "asking_takes_nothing": {"admit": "self.held.add(request.handle) if len(self.held) < 2 else None"},
    "everybody_ends": {"finish": "pass", "leave": "pass"},
    "outputs_are_the_models": {"sampled": "step.pool[:, 3] = 1"},
    "everything_is_given_back": {
        "admit": "if request.handle < 0: return False",
        "finish": "self.held.discard(request.handle) if request.handle not in (0, 5) else None",
    },
    "forgetting_changes_no_output": {"reset": "self.counted.gone"},
    "figures_are_integers": {"stats": '{"held": 0.5}'},
    "calls_have_names": {"calls": '{"held": len(self.held)}'},
}


@pytest.fixture
def participant(make_plugin):
    def make(**given: str):
        sources = {"manifest": MANIFEST, "parts": SHARED, "engine": ENGINE, "worker": WORKER}
        for name, source in sources.items():
            for key, value in {**PARTS, **given}.items():
                source = source.replace("{" + key + "}", value)
            sources[name] = source
        return make_plugin("core.participants", sources)

    return make


def test_a_sound_participant_passes(participant):
    report = participant().report("participants", "spawn")
    assert (report.failures, report.level) == ([], Level.L1)


@pytest.mark.parametrize("check", CASES)
def test_participants(participant, check):
    assert check in participant(**CASES[check]).failing("participants")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"part": "plan.rows"}, "is no Rows: it is a ndarray"),
        ({"part": "Rows(object())"}, "cannot be sent"),
        ({"moments": "def finished(self, request): return 5"}, "it declares no such part"),
        ({"moments": "def supply(self, request, hashes, local_blocks): return 'all'"}, "supply() raised TypeError"),
        ({"moments": "def settle(self, requests, tokens): return {99: 'no'}"}, "settle() raised IndexError"),
    ],
)
def test_wrong_answers_are_named(participant, given, told):
    assert told in participant(**given).failing("participants")["nothing_goes_wrong"]


def test_one_that_takes_when_asked_is_told_so(participant):
    given = {**CASES["asking_takes_nothing"], "stats": "{}"}
    assert "admit takes" in participant(**given).failing("participants")["asking_takes_nothing"]


def test_what_it_constrains_is_left_out(participant):
    late = """def late(self, plan, alive):
        import numpy as np
        return AllowedTokens(plan.rows, np.full((len(plan.rows), 4), 7, np.int32))
"""
    given = {
        "late_type": ", late=AllowedTokens",
        "moments": late,
        "part": "plan.late.append(self.name) or Rows(plan.rows)",
    }
    report = participant(**given, sampled="pass\n\n    def allow(self, plan, late):\n        return late").report(
        "participants"
    )
    assert [one.check for one in report.outcomes if one.status != "passed"] == ["outputs_are_the_models"]
    assert report.failures == []
