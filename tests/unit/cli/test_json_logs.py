"""`--log-format json`: nothing is printed that is no record, whoever prints it."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import threading
import warnings
from datetime import datetime

import pytest

from core import logs, stray
from core.cli.main import main
from core.terminal.progress import WeightProgress

REQUIRED = {"time", "level", "process", "pid", "logger", "message"}


def records(text):
    found = [json.loads(line) for line in text.splitlines()]
    for one in found:
        assert one.keys() >= REQUIRED
        assert datetime.fromisoformat(one["time"]).utcoffset() is not None, "RFC 3339 with an offset"
    return found


@pytest.fixture
def stream():
    """What a process whose logs are JSON has written; its hooks are taken out again."""
    stream = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logs.setup("info", "json", stream=stream)
        yield stream
        stray.release()
    logging.getLogger().handlers = [
        one for one in logging.getLogger().handlers if not isinstance(one, logs.CoreHandler)
    ]


@pytest.mark.covers("OBS-05")
def test_a_record_has_its_own_fields_and_a_zone(stream, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    import time

    time.tzset()
    try:
        logging.getLogger("core.x").info("done", extra={logs.FIELDS: {"route": "/v1", "ms": 1.5, "level": "forged"}})
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
    (one,) = records(stream.getvalue())
    assert (one["route"], one["ms"], one["level"]) == ("/v1", 1.5, "info")
    assert one["time"].endswith("+05:30")


def test_warnings_and_exceptions_that_nobody_handles(stream):
    warnings.warn("old name", DeprecationWarning, stacklevel=1)
    try:
        raise KeyError("cause")
    except KeyError as error:
        sys.excepthook(KeyError, error, error.__traceback__)

    def fail():
        raise ValueError("in a thread")

    thread = threading.Thread(target=fail, name="worker")
    thread.start()
    thread.join()
    warned, raised, threaded = records(stream.getvalue())
    assert warned["level"] == "warning" and warned["message"].startswith("DeprecationWarning: old name (")
    assert raised["level"] == "critical" and raised["exception"].endswith("KeyError: 'cause'")
    assert threaded["message"] == "thread worker: ValueError: in a thread" and "fail" in threaded["exception"]


def test_text_logs_leave_python_as_it_is(stream):
    logs.setup("info", "text", stream=stream)
    assert (sys.excepthook, threading.excepthook) == (sys.__excepthook__, threading.__excepthook__)
    assert sys.unraisablehook is sys.__unraisablehook__


CHILD = """
import os, sys
print("a library says", flush=True)
print('{"time": "t", "message": "a record"}', file=sys.stderr, flush=True)
os.write(2, b"not \\xff text\\n\\n")
print('{"half": 1', flush=True)
raise KeyError("cause")
"""


def test_what_a_child_writes_is_passed_on_as_records(stream):
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    relayed = logs.relay(child.stdout, "engine", child.pid)
    relayed.join(30)
    child.wait()
    lines = stream.getvalue().splitlines()
    assert lines.pop(1) == '{"time": "t", "message": "a record"}', "as it came"
    said, odd, half, raised = records("\n".join(lines))
    assert said["message"] == "a library says" and (said["process"], said["pid"]) == ("engine", child.pid)
    assert odd["message"] == "not � text" and half["message"] == '{"half": 1'
    assert raised["message"] == "KeyError: 'cause'" and raised["exception"].startswith(stray.TRACEBACK)
    assert raised["exception"].count("\n") >= 2 and raised["level"] == "error"


def test_progress_and_what_commands_print(stream, capsys):
    with WeightProgress(stream) as progress:
        for done in range(0, 101, 50):
            progress.update(done, 100)
    logs.tell("a\ntable", {"event": "table", "rows": [[1]]}, message="a table")
    told = records(stream.getvalue())
    assert [(one["event"], one["done"], one["total"]) for one in told] == [("progress", n, 100) for n in (0, 50, 100)]
    (table,) = records(capsys.readouterr().out)
    assert (table["message"], table["rows"]) == ("a table", [[1]])


@pytest.mark.parametrize(
    ("words", "variables", "code"),
    [
        (["serve", "--prot", "1", "--log-format", "json"], {}, "CORE-C104"),
        (["serve", "--log-format=json", "--port", "x"], {}, None),
        (["ls", "--nothing"], {"CORE_LOG_FORMAT": "json"}, "CORE-C104"),
        (["config", "show", "--log-format", "json", "--log-level", "loud"], {}, "CORE-C107"),
    ],
)
def test_wrong_words_are_a_record_too(capsys, monkeypatch, words, variables, code):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    try:
        assert main(words) == 2
    finally:
        stray.release()
    (one,) = records(capsys.readouterr().err)
    assert (one["level"], one["event"], one["status"]) == ("error", "failed", 2)
    assert code in (None, one["code"]) and one["code"].startswith("CORE-C")


def test_the_log_is_text_where_nothing_else_is_asked_for(capsys):
    assert main(["serve", "--log-format", "json", "--log-format", "text", "--prot"]) == 2
    assert capsys.readouterr().err.startswith("core: CORE-C104")
    assert "CORE_LOG_FORMAT" not in os.environ
