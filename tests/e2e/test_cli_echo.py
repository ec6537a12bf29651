"""What is on the terminal while an answer is drawn, and what the terminal is like after each way of leaving it."""

from __future__ import annotations

import re
import signal
import sys
from itertools import groupby

import pytest

CTRL_C, CTRL_Z, CTRL_BACKSLASH = "\x03", "\x1a", "\x1c"
LINE = ("word " * 16).strip()  # leaves one of 80 columns: an echoed ^C would begin a second line
ANSWER = """
import sys, threading, time
from core_plugin_chat import talk
from core.cli.client import StreamedDelta
from core.cli.host.processes import AllSignals
from core_plugin_chat.answer import open_view

def deltas(how, line):
    if how == "thinking":
        yield StreamedDelta(reasoning="hm")
    yield StreamedDelta(text=line)
    if how == "error":
        raise ValueError("gone wrong")
    while how != "end":  # until a signal comes; a wait would hold back the handlers of signals
        time.sleep(0.01)

how, line = sys.argv[1:]
try:
    answer = talk.show(AllSignals(), deltas(how, line), open_view(markdown=how != "thinking", reasoning=True))
    print("answer", answer.stopped)
    print("typed", repr(sys.stdin.readline()))
except ValueError as error:
    print("failed", error)
"""
JOB = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
while True:
    status = os.waitpid(job, os.WUNTRACED)[1]
    os.tcsetpgrp(0, os.getpgrp())
    if not os.WIFSTOPPED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
    print("suspended", flush=True)
    sys.stdin.readline()
    os.tcsetpgrp(0, job)
    os.killpg(job, signal.SIGCONT)
"""


def screen(raw, width=80):
    """Return the lines that a terminal shows after these bytes: a line that is full goes on when the next one comes."""
    lines, row, column = [""], 0, 0
    for token in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|[^\x1b]", raw):
        if token == "\r":
            column = 0
        elif token == "\n" or (token[0] != "\x1b" and column == width):
            row, column = row + 1, 0 if token != "\n" else column
            lines += [""] * (row + 1 - len(lines))
        elif (up := re.fullmatch(r"\x1b\[(\d*)A", token)) is not None:
            row = max(0, row - int(up[1] or 1))
        elif token == "\x1b[2K":
            lines[row] = ""
        if token[0] >= " ":
            lines[row] = lines[row].ljust(column)[:column] + token + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines if line.strip()]


@pytest.fixture
def answering(terminal):
    """`answering(how)` is a program that draws a line of an answer, and then does as `how` says."""

    def answering(how="wait", program=("-c", ANSWER)):
        shown = terminal(how, LINE, program=(sys.executable, *program))
        shown.expect(r"word\s*$" if how == "wait" else "word")
        return shown

    return answering


def test_ctrl_c_leaves_every_line_once(answering):
    shown = answering()
    shown.type("typed ahead\n" + CTRL_C)
    shown.expect(r"answer True\s*\n")  # what is typed before its line ends is drawn in it
    shown.type("typed\n")  # Ctrl-C has emptied the terminal's queue, as it always does
    assert shown.wait() == 0
    assert screen(shown.raw)[:3] == [LINE, "[stopped]", "answer True"]


def test_what_is_typed_meanwhile_is_not_shown_and_read_later(answering):
    shown = answering("thinking")
    assert not shown.echoes
    shown.type("typed ahead\n")
    shown.process.send_signal(signal.SIGINT)
    shown.expect("typed 'typed ahead")
    assert shown.wait() == 0 and screen(shown.raw)[-1] == r"typed 'typed ahead\n'"


@pytest.mark.parametrize(
    ("how", "leave", "status"),
    [
        ("end", None, 0),
        ("error", None, 0),
        ("wait", CTRL_C, 0),
        ("wait", CTRL_BACKSLASH, 128 + signal.SIGQUIT),
        ("wait", signal.SIGTERM, 128 + signal.SIGTERM),
        ("wait", signal.SIGHUP, 128 + signal.SIGHUP),
    ],
)
def test_echo_is_back_after_every_way_of_leaving(answering, how, leave, status):
    shown = answering(how)
    if leave is not None:
        assert not shown.echoes
        shown.type(leave) if isinstance(leave, str) else shown.process.send_signal(leave)
    if status == 0:
        shown.expect("answer|failed")
        assert shown.echoes
        shown.type("\n")
    assert shown.wait() == status and shown.echoes
    assert screen(shown.raw)[0] == LINE and shown.raw.rfind("\x1b[?25h") > shown.raw.rfind("\x1b[?25l")


def test_ctrl_z_gives_the_terminal_back_and_fg_goes_on(answering):
    shown = answering(program=("-c", JOB, ANSWER))
    for _ in range(2):
        assert not shown.echoes
        shown.type(CTRL_Z)
        shown.expect("suspended\r\n")
        assert shown.echoes and shown.raw.rfind("\x1b[?25h") > shown.raw.rfind("\x1b[?25l")
        shown.type("fg\n")
        shown.expect(r"word\s*$")
    shown.type(CTRL_C)
    shown.expect("answer True")
    assert shown.echoes
    shown.type("\n")
    assert shown.wait() == 0
    # A signal in the middle of drawing on leaves the line there twice, now and then.
    lines = [line for line, _ in groupby(screen(shown.raw))]
    assert lines[:6] == ["suspended", "fg", "suspended", "fg", LINE, "[stopped]"]
