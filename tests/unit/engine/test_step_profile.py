"""Phases of a step are timed while somebody asks, and not touched otherwise."""

from __future__ import annotations

import pytest
from core_plugin_bench.profile import show_profile, summary

from core.cli.host import Host
from core.engine.profile import CAPACITY, INNER, PHASES, Profile, untimed


def test_a_profile_counts_and_keeps_what_was_returned_or_raised():
    profile = Profile()
    double = profile("step", lambda x, *, more=0: 2 * x + more)
    assert [double(3), double(4, more=1)] == [6, 9]
    broken = profile("wait", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        broken()
    profile("settle", lambda: None)
    report = profile.report()
    assert {name: one[0] for name, one in report.items()} == {"step": 2, "wait": 1}
    count, total, median, high = report["step"]
    assert 0 < median <= high <= total and total == pytest.approx(median * count)


def test_more_durations_than_are_kept_are_all_counted():
    profile = Profile()
    work = profile("step", lambda: None)
    for _ in range(CAPACITY + 5):
        work()
    assert profile.report()["step"][0] == CAPACITY + 5


def test_an_engines_phases_are_timed_and_left_alone_again(harness):
    engine = harness()
    schedule, settle = engine.scheduler.schedule, engine.loop.settler.settle
    profile = Profile()
    engine.loop.time(profile)
    engine.add(1, range(6), max_tokens=5)
    engine.run()
    report = profile.report()
    assert {"schedule", "launch", "wait", "settle"} == set(report)
    steps = engine.loop.settler.totals.steps
    assert report["launch"][0] == report["wait"][0] == report["settle"][0] == steps
    engine.loop.time(untimed)
    # The phase is the scheduler's own method again: nothing stands in between.
    assert engine.loop._choose == schedule and engine.loop._account == settle
    engine.add(2, range(6), max_tokens=5)
    engine.run()
    assert profile.report()["settle"][0] == steps


def test_a_summary_keeps_the_order_of_a_step_and_gives_shares(capsys):
    report = {"settle": [4, 0.5, 0.1, 0.2], "schedule": [4, 1.0, 0.2, 0.3], "forward": [4, 2.0, 0.5, 0.6]}
    figures = summary(report, Host().step_phases, elapsed=4.0)
    assert list(figures) == ["schedule", "forward", "settle"]
    wanted = {"count": 4, "total_s": 1.0, "median_ms": 200.0, "p99_ms": 300.0, "share": 0.25}
    assert figures["schedule"] == pytest.approx(wanted)
    assert set(PHASES) >= INNER
    show_profile(Host().terminal, figures, Host().step_phases)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("schedule") and "25.0%" in line for line in lines)
    assert any(line.startswith("  forward") and "50.0%" in line for line in lines)
    show_profile(Host().terminal, {}, [])
    assert capsys.readouterr().out == ""
