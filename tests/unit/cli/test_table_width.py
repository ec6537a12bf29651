"""No table is wider than the terminal: columns are left out or cells shortened, and `--json` has everything."""

from __future__ import annotations

import io
import json
import random
import sys
import time
from types import SimpleNamespace

import pytest

from core.cli.main import main
from core.terminal.tables import room, table

LONG = "a-name-without-an-end-" * 6


@pytest.fixture
def eighty(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def crowded(monkeypatch, tmp_path):
    """Long names wherever names come from outside."""
    from core.server.registry import RunningServer

    servers = [RunningServer(pid, time.time() - 90000, f"http://{LONG}:8000", LONG) for pid in (1, 4000000)]
    monkeypatch.setattr("core.server.registry.running_servers", lambda: servers)
    monkeypatch.setenv("CORE_SERVED_MODEL_NAME", json.dumps([LONG]))
    monkeypatch.setenv("CORE_DOWNLOAD_DIR", str(tmp_path / LONG))
    monkeypatch.setenv("LD_PRELOAD_NOTE", LONG)


COMMANDS = [
    ["plugins"],
    ["plugins", "list"],
    ["plugins", "api"],
    ["plugins", "info", "llama"],
    ["plugins", "why", "smollm2"],
    ["config", "show"],
    ["config", "show", "--resolved"],
    ["ls"],
    ["show", "smollm2"],
    ["ps"],
    ["collect-env"],
]


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_every_line_of_a_command_s_table_fits(eighty, crowded, capsys, argv):
    assert main(argv) == 0
    out, _ = capsys.readouterr()
    assert out.strip() and max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("command", [["plugins", "list"], ["plugins", "api"], ["ps"]], ids=" ".join)
def test_a_row_stays_one_line_and_json_has_all(eighty, crowded, capsys, command):
    main(command)
    lines = capsys.readouterr().out.splitlines()
    main([*command, "--json"])
    out = capsys.readouterr().out
    assert len(lines) == len(json.loads(out)) + 2
    if command == ["ps"]:
        assert LONG in out and all("…" in line for line in lines[2:])


def test_the_facts_of_a_bug_report_are_whole(eighty, monkeypatch, capsys):
    monkeypatch.setenv("PYTHONLONG", LONG)
    main(["collect-env"])
    out = capsys.readouterr().out
    assert LONG in "".join(line.strip().removeprefix("PYTHONLONG").strip() for line in out.splitlines())


def test_figures_of_benchmarks_fit(eighty, capsys):
    from core_plugin_bench.phases import Phase, memory_table, phases_table
    from core_plugin_bench.profile import show_profile
    from core_plugin_bench.report import show

    from core.cli.host import Host
    from core.engine.profile import PHASES

    screen, phases = Host().terminal, Host().step_phases

    show(screen, "Latency", [(LONG, LONG)])
    figures = {phase: {"count": 10**6, "median_ms": 1e3, "p99_ms": 1e5, "share": 0.5} for phase in PHASES}
    show_profile(screen, figures, phases)
    print(phases_table(screen, [Phase(LONG, LONG, 0.0, 123.0)]))
    print(memory_table(screen, {LONG: [2**40] * 3}))
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_any_table_fits_any_width():
    rng = random.Random(1)
    for _ in range(300):
        columns, width = rng.randint(1, 7), rng.randint(20, 120)
        cells = [["x" * rng.choice((0, 1, 5, 20, 90)) for _ in range(columns)] for _ in range(3)]
        some = [rng.sample(range(columns), rng.randint(0, columns - 1)) for _ in range(2)]
        text = table(cells[0], cells[1:], right=some[0], optional=some[1], width=width)
        assert all(len(line) <= width for line in text.split("\n")), (cells, width)


def test_columns_are_left_out_before_names_become_illegible():
    rows = [("name-of-twenty-chars", "distribution-of-thirty-characters", "1.0", "it works")]
    header = ("name", "distribution", "version", "state")
    assert table(header, rows, optional=(2, 1), width=30).splitlines() == [
        "name                  state",
        "--------------------  --------",
        "name-of-twenty-chars  it works",
    ]
    assert table(header, rows, optional=(2, 1), width=60).splitlines()[2].split("  ") == [
        "name-of-twenty-chars",
        "distribution-of-thirty-char…",
        "it works",
    ]
    assert table(header, rows, width=200) == table(header, rows)


def test_figures_are_shortened_last():
    assert table((), [("long-name", "123456")], right=(1,), width=12) == "lon…  123456"


@pytest.mark.parametrize(
    ("columns", "terminal", "expected"), [(None, False, None), ("80", False, 80), ("44", True, 44)]
)
def test_the_room_of_a_line(monkeypatch, columns, terminal, expected):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    stream = SimpleNamespace(isatty=lambda: terminal, write=io.StringIO().write, flush=lambda: None)
    monkeypatch.setattr(sys, "stdout", stream)
    assert room() == expected
