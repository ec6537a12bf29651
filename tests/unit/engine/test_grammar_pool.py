"""Grammars are compiled beside the engine, within bounds, and kept within bounds."""

from __future__ import annotations

import threading
import time

import pytest

from core.engine.compiling.pool import CompilePool, Compiler, PoolLimits
from core.engine.grammars import Grammar

KINDS = frozenset({"choice", "regex"})


class Compiled:
    def __init__(self, text, size=10):
        self.text, self.size = text, size

    def matcher(self):
        return self.text


def compiler(name="one", kinds=KINDS, compile=lambda kind, value: Compiled(value)):
    return Compiler(name, frozenset(kinds), compile)


def make(*compilers, clock=time.monotonic, **limits):
    return CompilePool(compilers or (compiler(),), PoolLimits(**limits), clock)


def refusing(kind, value):
    raise ValueError(f"no {value}")


def test_equal_grammars_are_compiled_once_whoever_asks():
    seen = []
    pool = make(compiler(compile=lambda kind, value: seen.append(value) or Compiled(value)))
    jobs = [pool.submit(Grammar("choice", "a", param=param)) for param in ("x", "y", "x")]
    assert all(job.wait(5) for job in jobs) and pool.check(jobs[0])
    assert jobs[0].result().text == "a" and seen == ["a"]


def test_what_one_driver_cannot_compile_the_next_one_tries():
    pool = make(compiler("first", compile=refusing), compiler("second"))
    job = pool.submit(Grammar("choice", "a"))
    assert job.wait(5) and job.result().text == "a"


def test_every_driver_says_why_it_cannot():
    pool = make(compiler("first", compile=refusing), compiler("second", compile=refusing), compiler("third", {"regex"}))
    job = pool.submit(Grammar("choice", "a"))
    assert job.wait(5) and job.failed
    with pytest.raises(ValueError, match=r"^first: no a; second: no a$"):
        job.result()


def test_a_driver_that_breaks_is_passed_over():
    def breaks(kind, value):
        raise KeyError(value)

    pool = make(compiler("first", compile=breaks), compiler("second"))
    job = pool.submit(Grammar("choice", "a"))
    assert job.wait(5) and job.result().text == "a"


def test_a_kind_that_nobody_compiles_is_refused_at_once():
    with pytest.raises(ValueError, match="'grammar' are not supported here; supported: choice, regex"):
        make().submit(Grammar("grammar", "a"))


def test_a_grammar_that_failed_is_tried_again_when_somebody_asks_again():
    answers = iter([ValueError("busy"), None])

    def compile(kind, value):
        error = next(answers)
        if error:
            raise error
        return Compiled(value)

    pool = make(compiler(compile=compile))
    first = pool.submit(Grammar("choice", "a"))
    assert first.wait(5) and first.failed
    second = pool.submit(Grammar("choice", "a"))
    assert second.wait(5) and not second.failed


def test_a_compiler_that_hangs_costs_its_own_request_only():
    release, now = threading.Event(), [0.0]

    def compile(kind, value):
        if value == "hangs":
            release.wait(30)
        return Compiled(value)

    pool = make(compiler(compile=compile), clock=lambda: now[0], seconds=5, workers=1)
    try:
        stuck = pool.submit(Grammar("choice", "hangs"))
        behind = pool.submit(Grammar("choice", "quick"))
        while stuck.began is None:
            time.sleep(0.001)
        assert not pool.check(stuck) and not behind.done
        now[0] = 11.0
        assert pool.check(stuck)
        with pytest.raises(ValueError, match="took more than 10 seconds"):
            stuck.result()
        further = pool.submit(Grammar("choice", "further"))  # brings the thread that takes the lost one's place
        assert behind.wait(5) and further.wait(5)
    finally:
        release.set()
        pool.close()


def test_what_was_asked_for_least_recently_is_forgotten_first():
    compiled = []
    pool = make(compiler(compile=lambda kind, value: compiled.append(value) or Compiled(value, 100)), cache_bytes=250)

    def ask(value):
        job = pool.submit(Grammar("choice", value))
        assert job.wait(5)

    for value in ("a", "b", "a", "c", "d"):  # three fit no longer: "b" goes, and "a" was asked for again
        ask(value)
    ask("a")
    ask("b")
    assert compiled == ["a", "b", "c", "d", "b"]
