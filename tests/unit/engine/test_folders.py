"""Temporary folders of processes that are gone, and of nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from core.api.folders import PrivateFolder, clear_left

HOLDS = """
import sys
from core.api.folders import PrivateFolder
print(PrivateFolder().path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def holder(place):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(place)},
    )
    return process, process.stdout.readline().strip()


def test_what_a_killed_process_left_goes_and_what_others_use_stays(place):
    living, used = holder(place)
    dead, left = holder(place)
    (place / os.path.basename(left) / "in").touch()
    dead.send_signal(signal.SIGKILL)
    dead.wait(20)
    mine = PrivateFolder()
    assert os.path.exists(left)
    assert clear_left() == 1
    assert not os.path.exists(left) and os.path.exists(used) and mine.path.exists()
    living.communicate("")
    mine.remove()
    mine.remove()
    assert not mine.path.exists()
    assert clear_left() == 1 and not os.path.exists(used)


def test_what_is_not_certainly_ours_stays(place):
    (place / "core-file").touch()
    (place / "core-empty").mkdir(mode=0o700)
    opened = place / "core-open"
    opened.mkdir(mode=0o755)
    (opened / "owner").touch()
    elsewhere = place / "other"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "owner").touch()
    (place / "core-link").symlink_to(elsewhere)
    linked = place / "core-linked"
    linked.mkdir(mode=0o700)
    (linked / "owner").symlink_to(elsewhere / "owner")
    (place / "core-worker-x").mkdir(mode=0o700)
    before = sorted(place.rglob("*"))
    assert clear_left() == 0
    assert sorted(place.rglob("*")) == before


def test_another_users_stay(place, monkeypatch):
    folder = PrivateFolder()
    os.close(folder._lock)
    monkeypatch.setattr("os.getuid", lambda: os.geteuid() + 1)
    assert clear_left() == 0
    assert folder.path.exists()
