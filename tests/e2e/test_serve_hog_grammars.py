"""Grammars made to be hard, beside a client that streams and one with an innocent pattern."""

from __future__ import annotations

import os
import random
import threading
import time
from itertools import count

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


def ask(server, fields, answers, name, **more):
    with server.http() as http:
        body = {"prompt": "a", "max_tokens": 3, "structured_outputs": fields, **more}
        answers[name] = http.post("/v1/completions", json=body, timeout=120)


@pytest.mark.exhaustive
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
    # Compiled in turn with the hogs, it waited 47 s; behind a slow core it may wait for a few.
    assert max(waits) < 6.0 * busy and streaming.gap < 3.0 * busy, (waits, streaming.gap, streaming.pieces)


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


SECONDS = 2
"""`--grammar-timeout` of the server that is fuzzed: with two backends, a grammar is refused within twice that."""


def pattern(rng):
    """Return a pattern that is hard in one of the ways that patterns are."""
    most = rng.choice([3, 30, 300, 3000, 100_000])
    some = rng.choice(["a", "[ab]", ".", "(a|aa)", "[^x]", r"\w", "(ab|a|b)", "[^\\u0000-\\uffff]", "é"])
    return rng.choice(
        [
            f"({some}{{1,{most}}}){{1,{most}}}",
            f"[ab]*a[ab]{{{most % 3000}}}c",
            "(" * (most % 90) + some + "*)*" * (most % 90),
            "|".join(f"{some}*{number}" for number in range(most % 5000 + 1)),
            f"({some}*{some}*){{{most}}}b",
            f"(?i){some}{{{most},}}",
            "^" * (most % 50) + some + "$",
        ]
    )


def schema(rng, depth=0):
    """Return a schema, or a part of one, that is larger than it looks."""
    most = rng.choice([2, 20, 200, 2000])
    leaf = {"type": "string", "pattern": pattern(rng)}
    ways = [
        lambda: leaf,
        lambda: {"type": "string", "minLength": most * 50, "maxLength": most * 500},
        lambda: {"enum": [f"{number:0{most % 50}}" for number in range(most)]},
        lambda: {"type": "integer", "minimum": -(10 ** (most % 300)), "maximum": 10 ** (most % 290)},
        lambda: references(rng.choice([6, 14, 22, 40])),
    ]
    deeper = [
        lambda: {"type": "array", "items": schema(rng, depth + 1), "minItems": most, "maxItems": most * 1000},
        lambda: {"type": "object", "properties": {f"p{n}": schema(rng, 9) for n in range(most % 300)}},
        lambda: {"anyOf": [schema(rng, depth + 1) for _ in range(most % 12 + 1)]},
        lambda: {"allOf": [schema(rng, depth + 1) for _ in range(most % 7 + 1)]},
        lambda: {"type": "object", "patternProperties": {pattern(rng): True, pattern(rng): schema(rng, 9)}},
        lambda: {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, leaf]}}, "$ref": "#/$defs/a"},
        lambda: {"prefixItems": [schema(rng, depth + 1)] * (most % 40), "items": {"$ref": "#"}},
    ]
    return rng.choice(ways + deeper * 2 if depth < 3 else ways)()


def ebnf(rng):
    """Return a grammar of many rules, of many words, of many readings, or of none."""
    most = rng.choice([5, 25, 400, 20_000])
    return rng.choice(
        [
            "root ::= root root | " + '"a"',
            "root ::= root " * rng.choice([1, 5, 50]) + ' | "a" | ""',
            "\n".join(["root ::= a0", *(f"a{n} ::= a{n + 1} a{n + 1}" for n in range(most)), f'a{most} ::= "x"']),
            "root ::= " + "x " * (most % 500 + 1) + '\nx ::= "a" x | "b" x | ""',
            literals(most, rng.choice([" ", " | "])),
            f'root ::= ("a"{{1,{most}}}){{1,{most}}}',
            "root ::= " + "(" * (most % 3000) + '"a"' + ")" * (most % 3000),
            'root ::= "a"' + rng.choice(["\n", " ", "#\n", "\t\r\n"]) * most,
            "root ::= [" + "".join(chr(0x4E00 + n % 20_000) for n in range(most)) + "]*",
            f"start: /{pattern(rng)}/",
            'root ::= nobody\nroot ::= "twice"',
            "".join(rng.choice('"[](){}|*+?:=\\ \nar') for _ in range(most)),
        ]
    )


def tag(rng):
    """Return a structural tag of many or hard parts."""
    most = rng.choice([1, 10, 200])
    contents = [
        lambda: {"type": "json_schema", "json_schema": schema(rng, 2)},
        lambda: {"type": "regex", "pattern": pattern(rng)},
        lambda: {"type": "grammar", "grammar": ebnf(rng)},
        lambda: {"type": "any_text"},
    ]
    tags = [
        {"type": "tag", "begin": "<" * (n + 1), "content": rng.choice(contents)(), "end": ">"}
        for n in range(most % 30 + 1)
    ]
    triggered = {"type": "triggered_tags", "triggers": ["<"], "tags": tags}
    form = rng.choice([triggered, {"type": "sequence", "elements": [triggered] * (most % 60 + 1)}, tags[0]])
    return {"type": "structural_tag", "format": form}


WAYS = {"json": schema, "regex": pattern, "grammar": ebnf, "structural_tag": tag}


@pytest.fixture(scope="module")
def fuzzed(launch, tiny):
    flags = ("--grammar-timeout", str(SECONDS), "--grammar-cache-mib", "32", "--max-num-seqs", "8")
    return launch(str(tiny), *FLAGS, *flags).wait_ready()


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize("seconds", [6, pytest.param(120, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", WAYS)
def test_whatever_a_grammar_asks_for_it_is_its_own_trouble(fuzzed, name, seconds):
    """A sequence of hostile grammars, the same ones in each run, as many of it as the time allows."""
    rng, answers, waits = random.Random(name), {}, {}
    ask(fuzzed, {"regex": "[0-9]{2}"}, answers, -1)
    engine = fuzzed.engine()
    before, busy = engine.memory_info().rss, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    streaming = Streaming(fuzzed)
    streaming.start()
    end, numbers, guard = time.monotonic() + seconds, count(), threading.Lock()

    def send():
        while time.monotonic() < end:
            with guard:
                number, fields = next(numbers), {name: WAYS[name](rng)}
            began = time.monotonic()
            ask(fuzzed, fields, answers, number, max_tokens=200)
            waits[number] = time.monotonic() - began

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    streaming.stop.set()
    streaming.join(60)
    odd = {n: (one.status_code, one.text[:400]) for n, one in answers.items() if one.status_code not in (200, 400)}
    assert len(answers) > 4 and not odd, odd
    assert fuzzed.engine().pid == engine.pid and fuzzed.gauges()["core_engine_restarts_total"] == 0
    # Two are compiled at once, each by two backends at most; a process that was killed is started again.
    assert max(waits.values()) < (2 * (2 * SECONDS + 1) + 5) * busy, waits
    assert streaming.pieces > 10 and streaming.gap < 3.0 * busy, (streaming.gap, streaming.pieces)
    assert engine.memory_info().rss - before < 400 * MIB
