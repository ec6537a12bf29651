"""Work that Ctrl-C ends for certain."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from core.cli.interruptible import interruptible

STUBBORN = """
import time
from core.cli.interruptible import interruptible

def work():
    while True:
        try:
            print("working", flush=True)
            time.sleep(60)
        except BaseException:
            pass

interruptible(work)
"""


def test_what_work_returns_and_raises_is_passed_on():
    assert interruptible(lambda: 7) == 7
    with pytest.raises(KeyError, match="missing"):
        interruptible(lambda: {}["missing"])


def test_work_that_drops_every_exception_is_left_behind():
    process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"working\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT and b"KeyboardInterrupt" in err
