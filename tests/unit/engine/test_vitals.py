"""When an engine process counts as stuck."""

from __future__ import annotations

import pytest

from core.engine.messages import Outputs, Pulse
from core.engine.vitals import SILENCE_SECONDS, WORK_SECONDS, Vitals


def test_one_that_is_silent_is_stuck_within_five_seconds():
    vitals = Vitals()
    ticks = 0
    while not vitals.stuck:
        vitals.tick(0.2)
        ticks += 1
    assert ticks * 0.2 <= 5 and vitals.still == pytest.approx(SILENCE_SECONDS, abs=0.25)
    vitals.seen(Outputs())
    assert not vitals.stuck and vitals.still == 0


@pytest.mark.parametrize(
    ("stalled", "working", "stuck"),
    [
        (1.0, False, False),
        (SILENCE_SECONDS, False, True),
        (SILENCE_SECONDS, True, False),
        (WORK_SECONDS - 1, True, False),
        (WORK_SECONDS, True, True),
    ],
)
def test_a_loop_that_does_not_turn_is_stuck_though_its_process_speaks(stalled, working, stuck):
    vitals = Vitals()
    vitals.tick(1.0)
    vitals.seen(Pulse(stalled, working))
    assert (vitals.stuck, vitals.still) == (stuck, stalled)
    vitals.seen(Outputs())
    assert not vitals.stuck


def test_silence_counts_even_in_the_middle_of_a_step():
    vitals = Vitals()
    vitals.seen(Pulse(3.0, working=True))
    vitals.tick(SILENCE_SECONDS)
    assert vitals.stuck and vitals.still == 3.0 + SILENCE_SECONDS


def test_a_worker_that_is_not_healthy_makes_its_engine_count_as_stuck():
    vitals = Vitals()
    vitals.seen(Pulse(1.0, working=True, healthy=False))
    assert vitals.stuck and vitals.workers
    vitals.seen(Pulse(1.0, working=True))
    assert not vitals.stuck and not vitals.workers
