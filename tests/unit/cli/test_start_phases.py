"""Phases of a start: reported in the log, read back, and the chain that decides."""

from __future__ import annotations

import io
import logging
import subprocess
import sys

import pytest
from core_plugin_bench.phases import Phase, deciding, memory_table, peak_memory, phases_table, read_phases

from core import logs, phases
from core.cli.host.servers import AllServers
from core.cli.host.terminal import Screen


@pytest.fixture
def log():
    """What is logged, as JSON lines at level debug."""
    stream, root = io.StringIO(), logging.getLogger()
    before = root.handlers[:], root.level, logging.getLogger("core").level
    logs.setup("debug", "json", process="engine", stream=stream)
    yield stream
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    logging.getLogger("core").setLevel(before[2])


def test_what_is_reported_can_be_read_back(log):
    with phases.phase("weights"):
        pass
    phases.report("wait for the configuration", 0.25, ago=0.5)
    logging.getLogger("core").debug("something else")
    found = read_phases(AllServers(), ["not json", "[1]", '{"message": 3}', *log.getvalue().splitlines()])
    assert [(one.process, one.name) for one in found] == [
        ("engine", "wait for the configuration"),
        ("engine", "weights"),
    ]
    wait, weights = found
    assert wait.begin == 0 and wait.seconds == pytest.approx(0.25)
    assert weights.end - wait.end == pytest.approx(0.5, abs=0.1)


def test_the_birth_of_a_process_is_dated(log):
    phases.report_birth("interpreter", ago=0.01)
    (found,) = read_phases(AllServers(), log.getvalue().splitlines())
    assert found.seconds > 0.05  # pytest itself took longer to come here


def test_nothing_is_reported_of_what_failed(log):
    with pytest.raises(ZeroDivisionError), phases.phase("weights"):
        _ = 1 / 0
    assert log.getvalue() == ""


def test_the_chain_goes_through_both_processes():
    every = [
        Phase("core", "interpreter", 0.0, 0.2),
        Phase("engine", "imports", 0.2, 0.4),
        Phase("core", "resolve", 0.2, 0.5),
        Phase("engine", "wait for the configuration", 0.4, 0.5, True),
        Phase("engine", "weights", 0.501, 1.5),
        Phase("core", "tokenizer", 0.6, 0.9),
        Phase("core", "wait for the engine", 0.9, 1.5, True),
        Phase("core", "listen", 1.5, 1.6),
    ]
    assert [one.name for one in deciding(every)] == ["interpreter", "resolve", "weights", "listen"]
    lines = phases_table(Screen(), every).splitlines()
    marked = {line.split()[1] for line in lines if line.rstrip().endswith(" *")}
    assert marked == {"interpreter", "resolve", "weights", "listen"}
    assert lines[-1].endswith("1.599 s in all")


def test_no_phases_make_an_empty_table():
    assert deciding([]) == []
    assert phases_table(Screen(), []).endswith("0.000 s in all")


def test_memory_of_a_process():
    command = [sys.executable, "-c", "print('here', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        peak, anonymous, mapped = peak_memory(process.pid)["api"]
        process.kill()
    assert peak >= anonymous > 2**20 and mapped > 2**20
    lines = memory_table(Screen(), {"api": [2**30, 2**20, 0], "engine": [2**30, 2**20, 0]}).splitlines()
    assert lines[-1].split() == ["sum", "2", "GiB", "2", "MiB", "0", "B"]
