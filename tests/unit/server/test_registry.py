"""Which servers are running: files that processes leave, and what is made of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import psutil
import pytest

from core.cli.host.terminal import Screen
from core.cli.main import main
from core.server.registry import Registration, registry_folder, running_servers


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "core" / "servers"


@pytest.fixture
def sleeper(folder):
    """A process that stands for a server, registered; `sleeper(model)` starts one."""
    started = []

    def start(model, **changes):
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        started.append(process)
        facts = {"pid": process.pid, "started": psutil.Process(process.pid).create_time(), "model": model}
        folder.mkdir(parents=True, exist_ok=True)
        facts |= {"url": f"http://127.0.0.1:{process.pid}", "version": "0.1.0", **changes}
        (folder / f"{process.pid}.json").write_text(json.dumps(facts))
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_server_is_listed_while_it_runs(folder, capsys):
    server = Registration("http://127.0.0.1:8000", "tiny")
    assert main(["ps"]) == 0 and capsys.readouterr().out == "no server is running\n"
    server.write()
    assert folder.stat().st_mode & 0o777 == 0o700
    (found,) = running_servers()
    assert (found.pid, found.url, found.model) == (os.getpid(), "http://127.0.0.1:8000", "tiny")
    assert main(["ps"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[:3] == ["tiny", "http://127.0.0.1:8000", str(os.getpid())]
    server.remove()
    server.remove()
    assert running_servers() == [] and list(folder.iterdir()) == []


def test_a_socket_has_its_whole_path():
    server = Registration("unix:core.sock", "tiny")
    server.write()
    assert running_servers()[0].url == f"unix:{os.getcwd()}/core.sock"
    server.remove()


def test_without_a_place_the_server_is_not_listed(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    server = Registration("http://127.0.0.1:8000", "tiny")
    server.write()
    server.remove()
    assert running_servers() == []


def test_the_users_state_is_the_other_place(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert registry_folder() == tmp_path / "state" / "core" / "servers"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert registry_folder() == tmp_path / ".local" / "state" / "core" / "servers"


def test_files_of_processes_that_are_gone_are_removed(folder, sleeper):
    gone = sleeper("gone")
    gone.kill()
    gone.wait()
    reused = sleeper("reused", started=1000.0)
    for name, text in {"1.json": "{", "2.json": "[]", "3.json": '{"pid": 3}', "x.json": '{"pid": "x"}'}.items():
        (folder / name).write_text(text)
    alive = sleeper("alive")
    assert [server.model for server in running_servers()] == ["alive"]
    assert [path.name for path in folder.iterdir()] == [f"{alive.pid}.json"]
    assert main(["stop", "--all"]) == 0
    assert reused.poll() is None and alive.wait(30) == -15


@pytest.mark.parametrize(
    "changes",
    [{"pid": -1}, {"pid": 2**80}, {"pid": True}, {"url": 5}, {"model": None}, {"version": {}}, {"started": "1"}],
)
def test_a_file_that_no_server_wrote_is_not_believed(folder, changes):
    me = psutil.Process()
    facts = {"pid": me.pid, "started": me.create_time(), "url": "u", "model": "m", "version": "1", **changes}
    folder.mkdir(parents=True, mode=0o700)
    (folder / f"{int(facts['pid'])}.json").write_text(json.dumps(facts))
    assert running_servers() == [] and list(folder.iterdir()) == []


def test_what_is_no_file_is_left_alone(folder, tmp_path):
    folder.mkdir(parents=True, mode=0o700)
    os.mkfifo(folder / "1.json")
    (folder / "2.json").symlink_to("/dev/zero")
    (folder / "3.json").mkdir()
    (folder / "4.json").write_text("[" * 60000)
    (folder / "5.json").write_text(" " * 2**20)
    assert running_servers() == []
    assert [path.name for path in folder.iterdir()] == ["3.json"]


def test_nothing_is_read_or_written_where_others_can_write(folder, sleeper, capsys):
    sleeper("tiny")
    folder.chmod(0o777)
    server = Registration("http://127.0.0.1:8000", "mine")
    server.write()
    assert len(list(folder.iterdir())) == 1 and running_servers() == []
    assert main(["stop", "--all"]) == 0 and capsys.readouterr().out == "no server is running\n"
    folder.chmod(0o700)
    assert [one.model for one in running_servers()] == ["tiny"]


def test_a_process_that_ends_meanwhile_was_ended(folder, sleeper, capsys, monkeypatch):
    process = sleeper("tiny")
    monkeypatch.setattr(psutil.Process, "terminate", lambda self: (process.kill(), process.wait(), self.status()))
    assert main(["stop", "tiny"]) == 0
    assert capsys.readouterr().out.startswith("stopped tiny")


def test_which_server_is_stopped(sleeper, capsys):
    first, second, third = sleeper("a"), sleeper("b"), sleeper("b")
    for words, said in ((["stop"], "several"), (["stop", "b"], "several"), (["stop", "c"], "no server")):
        assert main(words) == 1
        err = capsys.readouterr().err
        assert "CORE-S193" in err and said in err
    assert main(["stop", "a", "--all"]) == 2
    assert main(["stop", "a", str(second.pid)]) == 0
    assert (first.wait(30), second.wait(30), third.poll()) == (-15, -15, None)
    assert main(["stop"]) == 0 and third.wait(30) == -15
    assert main(["stop"]) == 0 and "no server is running" in capsys.readouterr().out


def test_a_server_that_does_not_end_is_said(folder, capsys, tmp_path):
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    process.stdout.readline()
    folder.mkdir(parents=True)
    facts = {"pid": process.pid, "started": psutil.Process(process.pid).create_time(), "model": "deaf"}
    (folder / f"{process.pid}.json").write_text(json.dumps({**facts, "url": "http://x", "version": "0"}))
    assert main(["stop", "deaf", "--wait", "0.2"]) == 1
    assert "CORE-S194" in capsys.readouterr().err
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (0.4, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7260, "2 h 1 min"), (90000, "1 d 1 h")],
)
def test_lengths_of_time(seconds, text):
    assert Screen().duration(seconds) == text
