"""Grammars are compiled beside the engine, within bounds, and kept within bounds."""

from __future__ import annotations

import threading
import time

import pytest

from core.engine.compiling.line import EASY, Line, effort
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
    assert all(job.wait(30) for job in jobs) and pool.check(jobs[0])
    assert jobs[0].result().text == "a" and seen == ["a"]


def test_what_one_driver_cannot_compile_the_next_one_tries():
    pool = make(compiler("first", compile=refusing), compiler("second"))
    job = pool.submit(Grammar("choice", "a"))
    assert job.wait(30) and job.result().text == "a"


def test_every_driver_says_why_it_cannot():
    pool = make(compiler("first", compile=refusing), compiler("second", compile=refusing), compiler("third", {"regex"}))
    job = pool.submit(Grammar("choice", "a"))
    assert job.wait(30) and job.failed
    with pytest.raises(ValueError, match=r"^first: no a; second: no a$"):
        job.result()


def test_a_driver_that_breaks_is_passed_over():
    def breaks(kind, value):
        raise KeyError(value)

    pool = make(compiler("first", compile=breaks), compiler("second"))
    job = pool.submit(Grammar("choice", "a"))
    assert job.wait(30) and job.result().text == "a"


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
    assert first.wait(30) and first.failed
    second = pool.submit(Grammar("choice", "a"))
    assert second.wait(30) and not second.failed


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
        assert behind.wait(30) and further.wait(30)
    finally:
        release.set()
        pool.close()


def test_what_was_asked_for_least_recently_is_forgotten_first():
    compiled = []
    pool = make(compiler(compile=lambda kind, value: compiled.append(value) or Compiled(value, 100)), cache_bytes=250)

    def ask(value):
        job = pool.submit(Grammar("choice", value))
        assert job.wait(30)

    for value in ("a", "b", "a", "c", "d"):  # three fit no longer: "b" goes, and "a" was asked for again
        ask(value)
    ask("a")
    ask("b")
    assert compiled == ["a", "b", "c", "d", "b"]


# -- fairness ----------------------------------------------------------------------------------------------------------


class Slow:
    """A compiler that keeps hard grammars until it is told, and notes what it was given."""

    def __init__(self):
        self.begun, self.release = [], threading.Event()

    def __call__(self, kind, value):
        self.begun.append(value)
        if value.startswith("hard"):
            self.release.wait(20)
        return Compiled(value)


def hard(number):
    return Grammar("choice", f"hard {number} " + "x" * EASY)


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.covers("GRAM-01")
def test_a_flood_of_hard_grammars_delays_no_easy_one():
    slow = Slow()
    pool = make(compiler(compile=slow), workers=2)
    try:
        known = pool.submit(Grammar("choice", "known"))
        assert known.wait(30)
        flood = [pool.submit(hard(number)) for number in range(20)]
        until(lambda: flood[0].began is not None)
        easy = [pool.submit(Grammar("choice", f"easy {number}")) for number in range(20)]
        assert all(job.wait(30) for job in easy)  # all of them, while nothing of the flood is done
        assert pool.submit(Grammar("choice", "known")).done  # what was compiled before waits for nobody
        assert sum(job.done for job in flood) == 0 and sum(job.began is not None for job in flood) == 1
    finally:
        slow.release.set()
    assert all(job.wait(30) for job in flood)
    assert len(slow.begun) == 41 and slow.begun[2:22] == [f"easy {number}" for number in range(20)]
    pool.close()


@pytest.mark.covers("GRAM-01")
def test_the_easier_comes_first_but_nobody_waits_for_ever():
    def order(arrivals):
        """Return who is taken when, of `(name, effort, time)`."""
        line = Line()
        for name, work, now in arrivals:
            line.put(name, work, now)
        return [line.take() for _ in arrivals]

    assert order([("big", 40_000, 0.0), ("small", 100, 1.0), ("smaller", 10, 1.0)]) == ["smaller", "small", "big"]
    assert order([("big", 40_000, 0.0), ("later", 100, 9.0), ("late", 100, 20.0)]) == ["later", "big", "late"]
    assert order([("huge", 10**9, 0.0), ("late", 100, 31.0)]) == ["huge", "late"]
    line = Line()
    line.put("big", EASY + 1, 0.0)
    line.put("small", EASY, 99.0)
    assert line.take(easy=True) == "small" and line.take() == "big"
    line.close()
    assert line.take() is None


def test_a_single_worker_takes_all_of_them():
    pool = make(compiler(), workers=1)
    assert pool.submit(hard(1)).wait(30) and pool.submit(Grammar("choice", "easy")).wait(30)


def test_the_worker_for_easy_ones_and_the_others_are_replaced_as_what_they_were():
    slow, now = Slow(), [0.0]
    pool = make(compiler(compile=slow), clock=lambda: now[0], seconds=1, workers=2)
    try:
        first = pool.submit(hard(1))
        until(lambda: first.began is not None)
        behind, easy = pool.submit(hard(2)), pool.submit(Grammar("choice", "easy"))
        assert easy.wait(30) and not behind.began
        now[0] = 5.0
        assert pool.check(first) and first.failed
        until(lambda: behind.began is not None)
        assert pool.submit(Grammar("choice", "another")).wait(30)
    finally:
        slow.release.set()
        pool.close()


def test_what_nobody_waits_for_any_more_is_not_begun():
    slow = Slow()
    pool = make(compiler(compile=slow), workers=1)
    first = pool.submit(hard(1))
    until(lambda: first.began is not None)
    gone, shared = pool.submit(hard(2)), [pool.submit(hard(3)) for _ in range(2)]
    pool.release(gone)
    pool.release(shared[0])
    again = pool.submit(hard(4))
    pool.release(again)
    again = pool.submit(hard(4))  # somebody else came
    slow.release.set()
    assert shared[1].wait(30) and again.wait(30)
    assert [value[:6] for value in slow.begun] == ["hard 1", "hard 3", "hard 4"]


@pytest.mark.parametrize(
    ("kind", "easy", "hard"),
    [
        ("regex", "[a-z]{3}-[0-9]{4}", "(a{1,1000}b){1,1000}"),
        ("json_schema", '{"type": "string", "maxLength": 40}', '{"type": "array", "maxItems": 900}'),
        ("json_schema", '{"type": "integer", "maximum": 99999}', '{"pattern": "' + "(a|b)?" * 2000 + '"}'),
    ],
)
def test_effort_looks_at_what_multiplies(kind, easy, hard):
    assert effort(Grammar(kind, easy)) <= EASY < effort(Grammar(kind, hard))


def test_the_estimate_itself_is_no_work():
    began = time.process_time()
    for text in ("{" * 2**19 + "1" * 2**19, "{" + "1" * (2**20 - 1), 'minLength"' + " " * 2**20, "?" * 2**20):
        assert effort(Grammar("regex", text[: 2**20])) >= 2**20
    assert time.process_time() - began < 1  # takes hundredths of it; quadratic work would take hours
