"""Stat sinks run beside the server: a slow one makes nobody wait, and one that fails is named."""

from __future__ import annotations

import threading

import pytest

from core.engine.messages import Stats
from core.frontend import sinks as module
from core.frontend.sinks import BACKLOG, StatSinks
from core.plugins.faults import Faults
from core.plugins.plan import PlannedPlugin


class Sink:
    """Notes what it is told, once it may.

    Attributes:
        began: It has been told something.
    """

    def __init__(self):
        self.told, self.may, self.began = [], threading.Event(), threading.Event()

    def record(self, stats):
        self.began.set()
        assert self.may.wait(60)
        self.told.append(threading.get_ident())

    def finished(self, request): ...

    def close(self):
        self.told.append("close")


@pytest.fixture
def pair(monkeypatch):
    monkeypatch.setattr(module, "INTERVAL", 0.0)
    sink = Sink()
    planned = PlannedPlugin(group="core.stat_sinks", name="slow", value="", dist="acme", version="1.0", api=1)
    sinks = StatSinks([(sink, Faults(planned, ""))])
    yield sink, sinks
    sink.may.set()
    sinks.close()


def test_a_sink_that_hangs_makes_nobody_wait_and_misses_what_is_too_much(pair, caplog):
    sink, sinks = pair
    sinks.observe(Stats())
    assert sink.began.wait(60)
    for _ in range(BACKLOG + 3):  # returns although the sink does not
        sinks.observe(Stats())
    assert sinks.faults()[0]["faults"] == 3
    assert "CORE-P161 stat sink 'slow' (acme 1.0): it is behind by 1000 records" in caplog.text
    sink.may.set()
    sinks.close()
    assert len(sink.told) == 1 + BACKLOG + 1 and sink.told[-1] == "close"
    assert set(sink.told[:-1]) and threading.get_ident() not in sink.told


def test_closing_waits_for_a_sink_but_not_for_long(pair, monkeypatch, caplog):
    sink, sinks = pair
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    sinks.observe(Stats())
    assert sink.began.wait(60)
    sinks.close()
    assert "it has not closed within 0.05 s" in caplog.text


def test_a_sink_that_raises_is_told_again(pair, caplog):
    sink, sinks = pair
    sink.record = None
    for _ in range(2):
        sinks.observe(Stats())
    sinks.close()
    assert sink.told == ["close"]
    assert sinks.faults()[0]["faults"] == 2 and "TypeError" in sinks.faults()[0]["last"]
