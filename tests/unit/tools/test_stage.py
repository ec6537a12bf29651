"""The line about a stage of `make install`: on a terminal, in a log of CI, and when the stage fails."""

from __future__ import annotations

import importlib.util
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TALK = "import sys; print('Collecting torch==2'); print('careful', file=sys.stderr); sys.exit(int(sys.argv[1]))"


@pytest.fixture(scope="module")
def stage():
    spec = importlib.util.spec_from_file_location("stage", ROOT / "tools" / "stage.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_in_a_log_there_are_two_lines_and_one_a_minute(stage):
    out, clock = io.StringIO(), Clock()
    progress = stage.Progress("2/4 torch", out, clock)
    for second in range(125):
        clock.now = 100.0 + second
        progress.heard("Collecting a-package\n")
        progress.tick()
    progress.end(0, Path("log"))
    assert out.getvalue().splitlines() == [
        "2/4 torch ...",
        "2/4 torch: 60 s, Collecting a-package",
        "2/4 torch: 120 s, Collecting a-package",
        "2/4 torch: done (124 s)",
    ]


def test_on_a_terminal_one_line_is_written_anew(stage):
    out, clock = Terminal(), Clock()
    progress = stage.Progress("2/4 torch", out, clock)
    clock.now += 3
    progress.heard("  Downloading torch-2.13.0-cp311-none-linux.whl (190 MB)\n")
    progress.heard("Requirement already satisfied: numpy\n")
    progress.tick()
    progress.tick()  # not twice within half a second
    progress.end(0, Path("log"))
    lines = [text.removeprefix("\x1b[K") for text in out.getvalue().split("\r")]
    assert lines == [
        "",
        "2/4 torch ...",
        "2/4 torch: 3 s, Downloading torch-2.13.0-cp311-none-linux.whl (190 MB)",
        "2/4 torch: done (3 s)\n",
    ]


@pytest.mark.parametrize(("status", "last"), [(0, "x: done ("), (3, "x: failed with status 3; what was printed is in")])
def test_a_command_s_status_warnings_and_whole_output_are_kept(tmp_path, status, last):
    log = tmp_path / "log"
    words = [sys.executable, ROOT / "tools" / "stage.py", "--log", log, "x", "--", sys.executable, "-c", TALK, status]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stderr == "careful\n"
    first, end = done.stdout.splitlines()
    assert first == "x ..." and end.startswith(last)
    assert sorted(log.read_text().splitlines()) == ["Collecting torch==2", "careful"]


def test_make_install_runs_pip_in_stages_only():
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "install", "VENV=/nowhere/venv"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    pip = [line for line in done.stdout.splitlines() if "-m pip install" in line]
    assert len(pip) == 5 and all("tools/stage.py --log /nowhere/venv/install.log" in line for line in pip)


def test_ctrl_c_ends_it_without_a_traceback_of_its_own(tmp_path):
    wait = "import sys, time; print('ready', file=sys.stderr, flush=True); time.sleep(100)"
    words = [ROOT / "tools" / "stage.py", "--log", tmp_path / "log", "x", "--", sys.executable, "-c", wait]
    with subprocess.Popen(
        [sys.executable, *map(str, words)], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stage.py" not in err
