from __future__ import annotations

import io
import json
import logging
import re

import pytest

from core import logs
from core.cli.env import collect, cpu_flags, redact
from core.cli.main import main


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("CORE_API_KEY", "k", "<hidden>"),
        ("HF_TOKEN", "k", "<hidden>"),
        ("CORE_DB_PASSWORD", "k", "<hidden>"),
        ("CORE_PORT", "80", "80"),
        ("CORE_MAX_NUM_BATCHED_TOKENS", "64", "64"),
        ("HF_ENDPOINT", "https://me:pw@host/x", "https://<hidden>@host/x"),
        ("CORE_PLUGIN_OPTIONS", '{"a": {"api_key": "pw", "n": 1}}', '{"a": {"api_key": "<hidden>", "n": 1}}'),
        ("HF_TOKEN", "", ""),
    ],
)
def test_secrets_are_hidden(name, value, shown):
    assert redact(name, value) == shown


def test_collect():
    facts = collect({"CORE_API_KEY": "hunter2", "HOME": "/root", "OMP_NUM_THREADS": "2"})
    assert facts["environment"] == {"CORE_API_KEY": "<hidden>", "OMP_NUM_THREADS": "2"}
    assert facts["packages"]["pydantic"][0].isdigit() and "torch" in facts["packages"]
    assert "core.platforms:cpu" in facts["plugins"]
    assert set(facts) == {"core", "system", "cpu", "memory", "packages", "plugins", "environment"}


def test_cpu_flags():
    assert cpu_flags("fpu amx_bf16 avx512f avx2 mmx") == "avx2 avx512f amx_bf16"


def test_collect_env(capsys, monkeypatch):
    monkeypatch.setenv("CORE_API_KEY", "hunter2")
    assert main(["collect-env", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["environment"]["CORE_API_KEY"] == "<hidden>"
    assert main(["collect-env"]) == 0
    out = capsys.readouterr().out
    assert "hunter2" not in out and re.search(r"pydantic +\d", out)


@pytest.fixture
def stream():
    return io.StringIO()


def test_text_lines(stream):
    logs.setup("info", "text", process="engine", stream=stream)
    logging.getLogger("core.engine.loop").info("step %d", 3)
    logging.getLogger("core.engine.loop").debug("hidden")
    logging.getLogger("httpx").info("hidden")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO +engine core\.engine\.loop: step 3\n", stream.getvalue()
    )


def test_a_message_stays_one_line(stream):
    logs.setup(stream=stream)
    logging.getLogger("core").warning("model %s", "a\nWARNING core: forged\x1b[2J\r")
    assert stream.getvalue().count("\n") == 1
    assert "\\nWARNING" in stream.getvalue() and "\x1b" not in stream.getvalue() and "\\x1b" in stream.getvalue()


def test_tracebacks_follow(stream):
    logs.setup(stream=stream)
    try:
        raise KeyError("cause")
    except KeyError:
        logging.getLogger("core").exception("failed")
    assert "failed\nTraceback" in stream.getvalue() and "KeyError: 'cause'" in stream.getvalue()


def test_json_lines(stream):
    logs.setup("debug", "json", process="api", stream=stream)
    logging.getLogger("core.x").debug("two\nlines %s", "ü")
    try:
        raise KeyError("cause")
    except KeyError:
        logging.getLogger("other").exception("failed")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["level"], first["process"], first["logger"], first["message"]) == (
        "debug",
        "api",
        "core.x",
        "two\nlines ü",
    )
    assert "KeyError" in second["exception"] and isinstance(second["pid"], int)


def test_a_second_set_up_replaces_the_first(stream):
    for _ in range(3):
        logs.setup(stream=stream)
    logging.getLogger("core").info("once")
    assert stream.getvalue().count("once") == 1


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("target", "variable", "coloured"), [(Terminal(), "", True), (Terminal(), "1", False), (io.StringIO(), "", False)]
)
def test_colour_only_on_a_terminal(monkeypatch, target, variable, coloured):
    monkeypatch.setenv("NO_COLOR", variable)
    monkeypatch.setenv("TERM", "xterm")
    logs.setup(stream=target)
    logging.getLogger("core").error("red")
    assert ("\x1b[31m" in target.getvalue()) is coloured


@pytest.mark.parametrize(("level", "form"), [("loud", "text"), ("info", "xml")])
def test_bad_settings(level, form):
    with pytest.raises(ValueError, match="allowed"):
        logs.setup(level, form)


def test_the_command_reads_the_environment(monkeypatch, capsys):
    monkeypatch.setenv("CORE_LOG_FORMAT", "json")
    monkeypatch.setenv("CORE_POTR", "1")
    assert main(["config", "show"]) == 0
    assert json.loads(capsys.readouterr().err)["level"] == "warning"
    monkeypatch.setenv("CORE_LOG_LEVEL", "loud")
    assert main(["config", "show"]) == 2


def test_the_last_records_are_remembered_within_bounds(stream):
    assert logs.recent() == []
    logs.setup("info", "json", process="engine", stream=stream)
    logger = logging.getLogger("core.x")
    logger.debug("not shown, not kept")
    try:
        raise ValueError("broken")
    except ValueError:
        logger.exception("a %s\nb", "line")
    (kept,) = logs.recent()
    assert (kept["level"], kept["process"], kept["logger"]) == ("error", "engine", "core.x")
    assert kept["message"].startswith("a line\nb\nTraceback") and "ValueError: broken" in kept["message"]
    logs.setup("info", process="engine", stream=stream)  # a new handler goes on where the one before was
    for number in range(logs.RECENT_LINES + 5):
        logger.info("%d %s", number, "x" * 5000)
    kept = logs.recent()
    assert len(kept) == logs.RECENT_LINES and kept[0]["message"].startswith("5 ")
    assert all(len(line["message"]) == logs.RECENT_CHARS for line in kept) and len(logs.recent(3)) == 3
