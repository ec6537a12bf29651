"""The engine's process before it has a configuration: quiet, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import msgspec
import pytest

from core.engine.child import Bootstrap, EngineChild

SECONDS = 20


class Config(SimpleNamespace):
    def model_dump_json(self):
        return self.json


def test_a_child_that_is_never_configured_ends_with_its_input():
    with EngineChild() as child:
        child.close_input()
        assert child.process.wait(SECONDS) == 0
    assert not child.folder.exists()


def test_leaving_the_block_ends_the_child_and_removes_its_folder():
    with EngineChild() as child:
        assert child.folder.stat().st_mode & 0o777 == 0o700  # nobody else can connect
        assert child.process.poll() is None
    assert child.process.poll() is not None
    assert not child.folder.exists()
    child.end()


def test_a_child_whose_parent_was_killed_ends():
    code = (
        "import os, time; from core.engine.child import EngineChild; child = EngineChild();"
        "print(child.process.pid, child.folder, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid, folder = parent.stdout.readline().split()
    parent.kill()
    parent.wait(SECONDS)
    deadline = time.monotonic() + SECONDS
    while _runs(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(int(pid))
    with EngineChild() as child:  # the next start finds what that one left
        assert not os.path.exists(folder)
        assert child.folder.exists()


def test_ctrl_c_during_the_first_imports_is_left_to_the_parent(capfd):
    with EngineChild() as child:
        for number in (signal.SIGINT, signal.SIGTERM):
            child.process.send_signal(number)
        time.sleep(0.05)
        assert child.process.poll() is None
        child.close_input()
        assert child.process.wait(SECONDS) == 0
    assert capfd.readouterr().err == ""


def test_signals_are_not_held_back_in_the_parent():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with EngineChild():
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_only_the_first_configuration_counts(monkeypatch):
    written = []

    class Pipe:
        def write(self, data):
            written.append(data)

        def flush(self):
            pass

        def close(self):
            pass

    process = SimpleNamespace(pid=2**30, stdout=None, stdin=Pipe(), poll=lambda: 0, wait=lambda: 0)
    monkeypatch.setattr("core.engine.child.subprocess.Popen", lambda *args, **options: process)
    with EngineChild() as child:
        child.configure(Config(json="1"))
        child.configure(Config(json="2"))
        (line,) = written
        bootstrap = msgspec.json.decode(line, type=Bootstrap)
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        assert (bootstrap.inbox, bootstrap.outbox) == (child.inbox, child.outbox)
        assert bootstrap.config == "1"


def test_a_folder_that_cannot_be_made_leaves_nothing(monkeypatch, tmp_path):
    def refuse(*args, **options):
        raise OSError("no more processes")

    monkeypatch.setattr("core.engine.child.subprocess.Popen", refuse)
    monkeypatch.setattr("core.api.folders.tempfile.mkdtemp", lambda prefix: str(tmp_path / "made"))
    (tmp_path / "made").mkdir()
    with pytest.raises(OSError, match="no more processes"):
        EngineChild()
    assert not (tmp_path / "made").exists()


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
