"""What is launched ahead is launched late: whoever arrives meanwhile is in it."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from core.engine.loop import EngineLoop
from core.engine.loop_timing import REMEMBERED, StepTimes
from core.engine.messages import Outputs
from core.engine.runner import CoreRunner


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_an_unknown_size_is_not_waited_for():
    assert StepTimes().certain(8) == 0.0


def test_the_shortest_of_the_latest_counts_less_a_margin():
    times = StepTimes()
    for seconds in (0.100, 0.200, 0.400):
        times.note(9, seconds)
    assert times.certain(15) == pytest.approx(0.075)
    assert times.certain(16) == 0.0  # another size
    for _ in range(REMEMBERED):
        times.note(8, 0.400)
    assert times.certain(8) == pytest.approx(0.300)


def test_of_short_steps_more_is_kept():
    times = StepTimes()
    times.note(1, 0.010)
    times.note(2, 0.003)
    assert times.certain(1) == pytest.approx(0.006)
    assert times.certain(2) == 0.0


def patient(harness, clock, depth=1):
    """Return an engine whose steps of one row have taken a second."""
    engine = harness(depth=depth, blocks=128)
    engine.loop = EngineLoop(engine.scheduler, engine.executor, depth, clock)
    engine.add(0, [1, 2, 3, 4], max_tokens=50)
    for _ in range(8):
        engine.advance()
        clock.now += 1.0
    return engine


def test_the_launch_ahead_waits_for_the_end_of_the_oldest_step(harness):
    clock = Clock()
    engine = patient(harness, clock)
    engine.advance()
    assert engine.loop.inflight == 1
    assert engine.loop.launch_wait() == pytest.approx(0.75)
    clock.now += 0.5
    assert engine.loop.launch_wait() == pytest.approx(0.25)
    clock.now += 0.5
    assert engine.loop.launch_wait() == 0.0


def test_only_the_last_launch_that_is_possible_waits(harness):
    clock = Clock()
    engine = patient(harness, clock, depth=2)
    engine.advance()
    assert (engine.loop.inflight, engine.loop.launch_wait()) == (2, pytest.approx(0.75))
    engine.loop.drain()
    assert engine.loop.launch_wait() == 0.0
    engine.advance()
    assert (engine.loop.inflight, engine.loop.launch_wait()) == (1, 0.0)


def test_without_overlap_nothing_waits(harness):
    engine = patient(harness, Clock(), depth=0)
    assert engine.loop.launch_wait() == 0.0


def test_a_failed_step_does_not_count_for_the_next(harness):
    clock = Clock()
    engine = patient(harness, clock)
    real, engine.worker.execute = engine.worker.execute, lambda plan: 1 / 0
    engine.loop._launch()
    engine.worker.execute = real
    engine.add(1, [5, 6], max_tokens=50)
    engine.advance()
    engine.advance()
    assert engine.loop.launch_wait() <= 0.75


class ScriptedCore:
    """What a runner needs of an engine; the loop is busy until it is told to stop, and its patience is scripted."""

    def __init__(self, patience):
        self.log, self._patience = [], list(patience)
        self.stopping = False
        self.loop = SimpleNamespace(busy=True, inflight=1, launch_wait=self._next)
        self.scheduler = SimpleNamespace(spread=False, has_work=True)

    def _next(self):
        return self._patience.pop(0) if self._patience else 0.0

    def handle(self, message):
        self.log.append(message)
        return []

    def advance(self):
        self.log.append("advance")
        self.stopping = True
        return [Outputs()]

    def settle_all(self):
        return []

    def stats(self):
        return None


@pytest.mark.parametrize(
    ("patience", "log"),
    [((60.0, 60.0, 0.0), ["a", "b", "advance"]), ((60.0, 0.0), ["a", "advance"]), ((0.0,), ["advance"])],
)
def test_a_runner_takes_what_arrives_before_the_next_launch_is_due(patience, log):
    core = ScriptedCore(patience)
    runner = CoreRunner(core, lambda message: None)
    thread = threading.Thread(target=runner.run, daemon=True)
    thread.start()
    for message in log[:-1]:
        runner.submit(message)
        while message not in core.log and thread.is_alive():
            time.sleep(0.001)
    thread.join(30)
    assert core.log == log


def test_who_runs_an_engine_on_its_own_has_people_waiting_for_first_tokens():
    core = ScriptedCore(())
    CoreRunner(core, lambda message: None)
    assert core.scheduler.spread
