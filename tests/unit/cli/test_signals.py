"""Signals where nobody can catch what they raise: they end the process all the same, and it says nothing of it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SECONDS = 30
HEAD = """
import asyncio, gc, os, signal, sys, time
from core.signals import closed_whole, ended_by, quietly, run_ended_by
signal.signal(signal.SIGINT, signal.default_int_handler)
def me(number): signal.raise_signal(number)
N = int(sys.argv[1])
"""
BODIES = {
    "in a finalizer": """
class Held:
    def __del__(self): me(N)
def work():
    Held()
    gc.collect()
    time.sleep(20)
""",
    "in a finalizer, and threads start slowly": """
import threading
start = threading.Thread.start
def slowly(thread):
    start(thread)
    time.sleep(0.2)
threading.Thread.start = slowly
class Held:
    def __del__(self): me(N)
def work():
    Held()
    time.sleep(20)
""",
    "in a task that nobody asks": """
async def main():
    async def lost(): me(N)
    task = asyncio.get_running_loop().create_task(lost())
    await asyncio.sleep(20)
def work(): asyncio.run(main())
""",
    "in a callback": """
async def main():
    asyncio.get_running_loop().call_soon(me, N)
    await asyncio.sleep(20)
def work(): asyncio.run(main())
""",
    "again while it cleans up": """
def work():
    try:
        me(N)
    finally:
        me(N)
""",
    "when everything is done": """
import atexit
atexit.register(me, N)
def work(): return 128 + N
""",
    "in a coroutine": """
async def main():
    me(N)
    try:
        await asyncio.sleep(20)
    finally:
        await asyncio.sleep(0)
        print("cleaned up")
def work():
    with asyncio.Runner() as runner:
        run_ended_by(runner, main(), signal.SIGTERM)
""",
    "while the event loop closes": """
class Loop(asyncio.SelectorEventLoop):
    def create_task(self, work, **more):
        task = super().create_task(work, **more)
        if "shutdown" in work.__qualname__: me(N)
        return task
async def main(): await asyncio.sleep(0)
def work():
    with closed_whole(asyncio.Runner(loop_factory=Loop)) as runner:
        run_ended_by(runner, main(), signal.SIGHUP)
    time.sleep(20)
""",
}
ERRORS = """
class Held:
    def __del__(self): raise ValueError('lost')
def work():
    Held()
    raise KeyError('x')
"""
TAIL = """
def whole():
    with ended_by(signal.SIGTERM):
        return work()
sys.exit(quietly(whole))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
@pytest.mark.parametrize("name", BODIES)
def test_a_signal_ends_the_process_without_a_word(name, number):
    code = HEAD + BODIES[name] + TAIL
    done = subprocess.run(
        [sys.executable, "-c", code, str(int(number))], capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode in (128 + number, -number), done.stderr
    assert done.stderr == ""
    if name == "in a coroutine" and number == signal.SIGTERM:
        assert done.stdout == "cleaned up\n"


def test_other_errors_are_shown_as_ever():
    code = HEAD + ERRORS
    done = subprocess.run([sys.executable, "-c", code + TAIL, "15"], capture_output=True, text=True, timeout=SECONDS)
    assert "ValueError: lost" in done.stderr and "KeyError: 'x'" in done.stderr and done.returncode == 1


def test_an_ignored_signal_stays_ignored():
    code = (
        "import asyncio, signal\nfrom core.signals import run_ended_by\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "async def main():\n    signal.raise_signal(signal.SIGHUP)\n    await asyncio.sleep(0.01)\n    return 3\n"
        "with asyncio.Runner() as runner:\n    print(run_ended_by(runner, main(), signal.SIGHUP))\n"
        "print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS)
    assert done.stdout == "3\nTrue\n", done.stderr
