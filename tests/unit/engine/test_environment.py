"""A platform's variables are set before torch is loaded, in whichever process loads it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from types import ModuleType

import pytest

from core.engine.environment import apply_environment
from core_testing.tinymodels import tiny_llama

NAMES = ("CORE_TEST_SPINS", "CORE_TEST_DYNAMIC")
WANTED = {NAMES[0]: "10", NAMES[1]: "false"}


@pytest.fixture
def unset(monkeypatch):
    """Neither variable is set, nor torch imported; both are as before afterwards."""
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that what a test sets is undone
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return monkeypatch


def test_what_the_user_set_stays(unset, caplog):
    unset.setenv(NAMES[0], "user")
    apply_environment(WANTED)
    assert [os.environ[name] for name in NAMES] == ["user", "false"]
    assert caplog.records == []


def test_torch_that_is_here_already_is_told_once(unset, caplog):
    unset.setitem(sys.modules, "torch", ModuleType("torch"))
    unset.setenv(NAMES[0], "user")
    with caplog.at_level(logging.WARNING, "core.engine.environment"):
        apply_environment(WANTED)
        apply_environment(WANTED)
    (record,) = caplog.records
    told = record.getMessage()
    assert told.startswith("CORE-P150") and f"{NAMES[1]}=false" in told and NAMES[0] not in told
    assert os.environ[NAMES[1]] == "false"  # for processes that are started from now on


@pytest.mark.parametrize("too_late", [False, True])
def test_an_llm_sets_what_the_platform_wants_before_torch(tmp_path, too_late):
    model = tiny_llama(tmp_path / "model")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(first="import torch" if too_late else "", model=str(model)))
    clean = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_DYNAMIC")}
    done = subprocess.run([sys.executable, script], env=clean, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == (["None", "None"] if too_late else ["10000", "false"])
    told = [line for line in done.stderr.splitlines() if "CORE-P150" in line]
    assert len(told) == too_late and all("GOMP_SPINCOUNT=10000 OMP_DYNAMIC=false" in line for line in told)


SCRIPT = """
import os, sys

seen = []

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch._C":
            self.look()

    def dlopen(self, event, args):
        if event == "ctypes.dlopen" and "gomp" in str(args[0]):
            self.look()

    def look(self):
        seen or seen.append(1) or print(os.environ.get("GOMP_SPINCOUNT"), os.environ.get("OMP_DYNAMIC"))

watch = Watch()
sys.meta_path.insert(0, watch)
sys.addaudithook(watch.dlopen)
{first}
from core import LLM

for _ in range(2):
    LLM({model!r}, dtype="float32", num_blocks=40, threads=1).close()
"""
