"""Grammars made to be hard, beside a client that streams and one with an innocent pattern."""

from __future__ import annotations

import os
import threading
import time

import httpx
import psutil
import pytest

FLAGS = ("--threads", "1", "--dtype", "float32", "--num-blocks", "400", "--grammar-memory-mib", "512")
MIB = 2**20


def references(depth):
    both = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(depth)}
    return {"$ref": "#/$defs/d0", "$defs": {**both, f"d{depth}": {"type": "string", "pattern": "^a+$"}}}


def literals(count, between):
    return "root ::= " + between.join(f'"w{number:06}"' for number in range(count))


HOGS = {
    "references": {"json": references(24)},
    "more references": {"json": references(26)},
    "literals in turn": {"grammar": literals(40_000, " ")},
    "literals to choose": {"grammar": literals(40_000, " | ")},
    "white space": {"grammar": 'root ::= "a"' + "\n" * 900_000},
    "rules": {
        "grammar": "\n".join(["root ::= a0", *(f"a{i} ::= a{i + 1} a{i + 1}" for i in range(26)), 'a26 ::= "x"'])
    },
}


@pytest.fixture(scope="module")
def served(launch, tiny):
    return launch(str(tiny), *FLAGS).wait_ready()


class Streaming(threading.Thread):
    """A client that reads one long stream after the other until it is told to stop.

    Attributes:
        gap: The longest time between two pieces, in seconds.
        pieces: How many came.
    """

    def __init__(self, server):
        super().__init__()
        self.server, self.stop, self.gap, self.pieces = server, threading.Event(), 0.0, 0

    def run(self):
        body = {"prompt": "a", "max_tokens": 60, "ignore_eos": True, "stream": True, "temperature": 0}
        with self.server.http() as http:
            while not self.stop.is_set():
                with http.stream("POST", "/v1/completions", json=body) as answer:
                    last = time.monotonic()
                    for line in answer.iter_lines():
                        if line.startswith("data:"):
                            now = time.monotonic()
                            self.gap, last, self.pieces = max(self.gap, now - last), now, self.pieces + 1


def ask(server, fields, answers, name):
    with server.http() as http:
        body = {"prompt": "a", "max_tokens": 3, "structured_outputs": fields}
        answers[name] = http.post("/v1/completions", json=body, timeout=120)


@pytest.mark.covers("GRAM-01")
def test_six_hogs_hurt_neither_a_stream_nor_an_innocent_pattern(served):
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # with what else runs here
    answers, engine = {}, served.engine()
    ask(served, {"regex": "[0-9]{2}"}, answers, "warm")
    pid, before = engine.pid, engine.memory_info().rss
    streaming = Streaming(served)
    streaming.start()
    threads = [threading.Thread(target=ask, args=(served, hog, answers, name)) for name, hog in HOGS.items()]
    for thread in threads:
        thread.start()
    waits: list[float] = []
    while any(thread.is_alive() for thread in threads) or len(waits) < 12:
        number = len(waits)
        began = time.monotonic()
        ask(served, {"regex": f"[0-9]{{2}}x{number}"}, answers, f"innocent {number}")
        waits.append(time.monotonic() - began)
        streaming.stop.wait(0.2)
    streaming.stop.set()
    streaming.join(60)
    codes = {name: answer.status_code for name, answer in answers.items()}
    assert len(codes) == len(HOGS) + len(waits) + 1 and {codes[name] for name in codes if name not in HOGS} == {200}, (
        codes
    )
    assert {codes["references"], codes["more references"]} == {400} and set(codes.values()) <= {200, 400}
    assert served.engine().pid == pid and served.engine().memory_info().rss - before < 400 * MIB
    assert max(waits) < 2.0 * busy and streaming.gap < 1.0 * busy, (waits, streaming.gap, streaming.pieces)


def test_a_hog_whose_client_left_is_ended(served):
    with served.http() as http:
        body = {"prompt": "a", "structured_outputs": {"grammar": literals(39_999, " | ")}}
        with pytest.raises(httpx.ReadTimeout):
            http.post("/v1/completions", json=body, timeout=0.5)
    deadline = time.monotonic() + 5  # it would take longer than that to be refused
    while busy_compilers(served):
        assert time.monotonic() < deadline


def busy_compilers(server):
    """Whether a process that compiles computes at the moment."""
    found = psutil.Process(server.engine().pid).children()
    before = [sum(one.cpu_times()[:2]) for one in found]
    time.sleep(0.4)
    now = [sum(one.cpu_times()[:2]) if one.is_running() else 0.0 for one in found]
    return any(spent - known > 0.1 for spent, known in zip(now, before, strict=True))


def test_running_out_of_memory_is_one_line_of_the_log(served):
    answers, known = {}, len(served.stderr)
    ask(served, {"json": {**references(25), "title": "another"}}, answers, "hog")
    assert "too much memory" in answers["hog"].json()["error"]["message"] or "seconds" in answers["hog"].text
    said = [line for line in served.stderr[known:].splitlines() if line.strip()]
    assert len(said) <= 1 and not any("Traceback" in line for line in said), said
    assert all("ran out of memory" in line for line in said)


def test_nothing_is_left_of_them(served):
    children = psutil.Process(served.engine().pid).children(recursive=True)
    assert sum(child.memory_info().rss for child in children) < 700 * MIB and len(children) <= 4
