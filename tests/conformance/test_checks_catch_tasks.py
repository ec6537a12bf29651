"""Each check of tasks finds the task that is wrong in its way."""

from __future__ import annotations

import pytest

from core_testing.conformance import Level

MANIFEST = """
from core.api import TaskSpec

SPEC = TaskSpec(name="broken", impl="PKG.task:Lengths", worker_impl="PKG.task:LengthsWorker",
                front_impl="PKG.task:LengthsFront", choose="PKG.task:choose", api=1, summary="s",
                settings={settings}, drives={drives})
"""

TASK = """
from dataclasses import replace

from core.api import ConfigError, Enqueued, Task, TaskChoice, TaskFront, TaskRunner, WorkerTask

ASKED = []


def choose(facts):
    ASKED.append(facts)
    {choose}
    return TaskChoice({context}, {data})


class Lengths(Task):
    name = "{name}"
    part = {part}
    whole_prompts = True
    decodes = {decodes}

    def limits(self, limits):
        return replace(limits, {limits})

    def settle(self, settler, step, alive, result, outputs): ...
    {moment}


class LengthsRunner(TaskRunner):
    def run(self, plan, result):
        return Enqueued()


class LengthsWorker({worker}):
    def runner(self, setup):
        return LengthsRunner()


class LengthsFront(TaskFront):
    gives = "{gives}"

    def __init__(self, setup):
        {front}
"""

PARTS = {
    "settings": "('runner',)",
    "drives": "()",
    "choose": "pass",
    "context": "facts.shape.max_positions",
    "data": "{'classes': len(facts.shape.pooling.labels) if facts.shape.pooling else 0}",
    "name": "broken",
    "part": "None",
    "decodes": "False",
    "limits": "max_num_batched_tokens=max(limits.max_num_batched_tokens, limits.max_model_len)",
    "moment": "",
    "worker": "WorkerTask",
    "gives": "lengths",
    "front": "self.classes = setup.data['classes']",
}

CASES = {
    ("halves_fit_the_contract", "is called 'other'"): {"name": "other"},
    ("halves_fit_the_contract", "half decodes"): {"decodes": "True"},
    ("halves_fit_the_contract", "it has settel, which nobody calls"): {"moment": "def settel(self): ..."},
    ("halves_fit_the_contract", "no subclass of core.api.WorkerTask"): {"worker": "object"},
    ("what_it_asks_core_for_is_there", "no option runer"): {"settings": "('runer',)"},
    ("what_it_asks_core_for_is_there", "not core.drafters"): {"drives": "('core.drafters',)"},
    ("choices_follow_from_facts_alone", "asked twice"): {"context": "len(ASKED)"},
    ("choices_follow_from_facts_alone", "raised ZeroDivisionError"): {"choose": "1 / 0"},
    ("choices_follow_from_facts_alone", "gave a dict"): {"choose": "return {}"},
    ("choices_follow_from_facts_alone", "has 0 tokens"): {"context": "0"},
    ("choices_follow_from_facts_alone", "cannot be written as JSON"): {"data": "{'classes': {1}}"},
    ("choices_follow_from_facts_alone", "tuples become lists"): {"data": "{'classes': (1,)}"},
    ("limits_let_its_requests_run", "fits into none of 16"): {"limits": "soft_budget=False"},
    ("limits_let_its_requests_run", "changes how many"): {"limits": "max_num_seqs=1"},
    ("parts_travel", "cannot be read from bytes"): {"part": "list[int] | set[int]"},
    ("its_front_half_says_what_requests_get", "cannot be made: KeyError"): {"front": "setup.data['sizes']"},
    ("its_front_half_says_what_requests_get", "does not say what requests get"): {"gives": ""},
}
"""Check and what it says -> what the task does that it finds."""


@pytest.fixture
def task(make_plugin):
    def make(**given: str):
        manifest, source = MANIFEST, TASK
        for key, value in {**PARTS, **given}.items():
            manifest, source = (text.replace("{" + key + "}", value) for text in (manifest, source))
        return make_plugin("core.tasks", {"manifest": manifest, "task": source})

    return make


def test_a_sound_task_passes(task):
    report = task().report("tasks", "spawn")
    assert (report.failures, report.level) == ([], Level.L1)


@pytest.mark.parametrize(("check", "told"), CASES, ids=lambda one: one)
def test_tasks(task, check, told):
    assert told in task(**CASES[check, told]).failing("tasks")[check]
