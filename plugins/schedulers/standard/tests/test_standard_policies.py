from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points

import pytest
from core_plugin_schedulers.manifest import FCFS, PRIORITY
from core_plugin_schedulers.policies import FirstComeFirstServed, PriorityOrder

from core.api import SchedulerPolicySpec


@dataclass
class Request:
    arrival: int
    priority: int = 0
    num_prompt: int = 8
    num_computed: int = 0


# In order of arrival: priorities 1, 0, 1, 0.
REQUESTS = [Request(arrival, priority) for arrival, priority in enumerate((1, 0, 1, 0))]


@pytest.mark.parametrize(
    ("policy", "order"),
    [(FirstComeFirstServed(), [0, 1, 2, 3]), (PriorityOrder(), [1, 3, 0, 2])],
)
def test_order_of_admission(policy, order):
    mixed = [REQUESTS[index] for index in (2, 0, 3, 1)]
    assert [one.arrival for one in sorted(mixed, key=policy.key)] == order


@pytest.mark.parametrize(
    ("policy", "order"),
    [(FirstComeFirstServed(), [3, 2, 1, 0]), (PriorityOrder(), [2, 0, 3, 1])],
)
def test_order_of_giving_way_is_the_reverse(policy, order):
    running, gone = list(REQUESTS), []
    while running:
        gone.append(running.pop(policy.victim(running)).arrival)
    assert gone == order


def test_a_resumed_early_request_is_not_the_victim_for_being_last_in_the_list():
    assert FirstComeFirstServed().victim([REQUESTS[1], REQUESTS[3], REQUESTS[0]]) == 1


def test_the_key_does_not_change_while_a_request_runs():
    request = Request(5, 2)
    keys = [policy.key(request) for policy in (FirstComeFirstServed(), PriorityOrder())]
    request.num_computed = 7
    assert keys == [policy.key(request) for policy in (FirstComeFirstServed(), PriorityOrder())]


def test_the_entry_points_name_the_descriptors():
    points = {one.name: one.load() for one in entry_points(group="core.schedulers") if "core_plugin_sch" in one.value}
    assert points == {"fcfs": FCFS, "priority": PRIORITY}
    assert all(isinstance(spec, SchedulerPolicySpec) for spec in points.values())


def test_first_come_is_the_default():
    assert (FCFS.band, FCFS.priority) > (PRIORITY.band, PRIORITY.priority)


def test_the_plugin_imports_nothing_heavy():
    code = "import sys, core_plugin_schedulers.manifest, core_plugin_schedulers.policies; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
