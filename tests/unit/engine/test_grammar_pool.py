"""Grammars are compiled beside the engine, within bounds, and kept within bounds."""

from __future__ import annotations

import json
import threading
import time

import pytest
from core_plugin_structured.compiling.effort import EASY, effort
from core_plugin_structured.compiling.line import Line
from core_plugin_structured.compiling.pool import EASY_SECONDS, CompilePool, Compiler, PoolLimits
from core_plugin_structured.compiling.turn import AbandonedError, BrokenCompilerError, OutOfTimeError
from hypothesis import example, given
from hypothesis import strategies as st

from core.api.grammars import Grammar

KINDS = frozenset({"choice", "regex"})


class Compiled:
    def __init__(self, text, size=10):
        self.text, self.size = text, size

    def matcher(self):
        return self.text


def compiler(name="one", kinds=KINDS, compile=lambda kind, value: Compiled(value)):
    def measured(kind, value, turn):
        compiled = compile(kind, value)
        turn.room(compiled.size)
        return compiled, compiled.size

    return Compiler(name, frozenset(kinds), measured)


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
        pool.release(job)

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


@given(st.sampled_from(["grammar", "regex", "json", "structural_tag"]), st.text('=:|{}[]()"#/ab1\\\n,$', max_size=30))
@example("grammar", "=}}{=")
def test_any_text_has_an_effort(kind, text):
    assert effort(Grammar(kind, text)) >= len(text)


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


def chain(depth, last="x"):
    """A schema of which each definition is two of the next."""
    both = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(depth)}
    return {"$ref": "#/$defs/d0", "$defs": {**both, f"d{depth}": {"type": "string", "pattern": last}}}


def doubled(depth, sign):
    return "\n".join(
        [f"root {sign} a0", *(f"a{i} {sign} a{i + 1} a{i + 1}" for i in range(depth)), f'a{depth} {sign} "x"']
    )


TAG = {
    "format": {"type": "tag", "begin": "<", "end": ">", "content": {"type": "json_schema", "json_schema": chain(24)}}
}


@pytest.mark.parametrize(
    ("kind", "value", "hard"),
    [
        ("json_schema", json.dumps(chain(24)), True),
        ("json_schema", json.dumps({"items": chain(400)["$defs"], **chain(400)})[:EASY], False),  # no JSON
        ("json_schema", json.dumps(chain(3)), False),
        ("json_schema", json.dumps({"$ref": "#", "$defs": {"a": {"$ref": "#/$defs/a"}}}), False),
        ("json_schema", json.dumps({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}), False),
        ("json_schema", json.dumps({"$ref": "#/prefixItems/0", "prefixItems": [{"$ref": "other"}]}), False),
        ("structural_tag", json.dumps(TAG), True),
        ("grammar", doubled(30, "::="), True),
        ("grammar", doubled(30, ":"), True),
        ("grammar", doubled(4, "::="), False),
        ("grammar", 'root ::= "a" root | "root ::= b" # root root root\n', False),
        ("json_schema", '{"items": ' * 1000, False),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_referred_to_counts_as_often_as_it_is(kind, value, hard):
    assert (effort(Grammar(kind, value)) > EASY) is hard and len(value) <= EASY


def test_the_estimate_itself_is_no_work():
    began = time.process_time()
    for text in ("{" * 2**19 + "1" * 2**19, "{" + "1" * (2**20 - 1), 'minLength"' + " " * 2**20, "?" * 2**20):
        assert effort(Grammar("regex", text[: 2**20])) >= 2**20
    for kind, piece in (("grammar", "a ::= "), ("grammar", '"\\'), ("grammar", "[\\"), ("json_schema", "[")):
        effort(Grammar(kind, piece * (EASY // len(piece))))
    assert time.process_time() - began < 1  # takes hundredths of it; quadratic work would take hours


# -- bounds ------------------------------------------------------------------------------------------------------------


def pooled(compile, **limits):
    """Return a pool of one driver, which is told the turn."""
    return CompilePool([Compiler("one", KINDS, compile)], PoolLimits(**limits))


def test_one_that_only_looks_easy_waits_among_the_hard_ones():
    turns, hogs = [], []

    def compile(kind, value, turn):
        if value == "innocent":
            return Compiled(value), 10
        turns.append((threading.get_ident(), turn.seconds))
        if turn.seconds == EASY_SECONDS:
            raise OutOfTimeError("it is over")
        hogs.append(value)
        release.wait(30)
        return Compiled(value), 10

    release = threading.Event()
    pool = pooled(compile, workers=2)
    try:
        jobs = [pool.submit(Grammar("choice", f"hog {number}")) for number in range(6)]
        assert pool.submit(Grammar("choice", "innocent")).wait(30)
        until(lambda: len([one for one in turns if one[1] == EASY_SECONDS]) >= 5)
        assert pool.submit(Grammar("choice", "innocent")).done and len(hogs) <= 1
    finally:
        release.set()
    assert all(job.wait(30) and not job.failed for job in jobs)
    pool.close()


def test_what_nobody_waits_for_any_more_is_ended():
    ended = threading.Event()

    def compile(kind, value, turn):
        until(lambda: not turn.wanted())
        ended.set()
        raise AbandonedError("nobody")

    pool = pooled(compile)
    job = pool.submit(Grammar("choice", "a"))
    until(lambda: job.began is not None)
    pool.release(job)
    assert job.wait(30) and job.failed and ended.is_set()
    pool.close()


def test_one_that_was_ended_is_compiled_for_who_came_meanwhile():
    came, given = threading.Event(), []

    def compile(kind, value, turn):
        given.append(value)
        if len(given) == 1:
            came.wait(30)
            raise AbandonedError("nobody")
        return Compiled(value), 10

    pool = pooled(compile)
    job = pool.submit(Grammar("choice", "a"))
    until(lambda: given)
    pool.release(job)
    again = pool.submit(Grammar("choice", "a"))
    came.set()
    assert again.wait(30) and again.result().text == "a"
    pool.close()


@pytest.mark.covers("GRAM-01")
def test_what_is_in_use_is_bounded_and_small_ones_have_a_place():
    mib = 2**20
    sizes = {**dict.fromkeys("abcde", 45 * mib), "huge": 60 * mib, "small": mib // 2}
    pool = make(compiler(compile=lambda kind, value: Compiled(value, sizes[value])), memory_bytes=200 * mib)
    jobs = {}

    def ask(value):
        jobs[value] = pool.submit(Grammar("choice", value))
        assert jobs[value].wait(30)
        try:
            return jobs[value].result() and None
        except ValueError as error:
            return str(error)

    assert "60 MiB; at most 50" in ask("huge")
    assert [ask(value) for value in "abcd"] == [None] * 4
    assert "take 180 MiB already" in ask("e") and ask("small") is None
    pool.release(jobs["a"])
    assert ask("e") is None


def test_failed_ones_are_not_kept():
    pool = make(compiler(compile=refusing))
    job = pool.submit(Grammar("choice", "a" * 1000))
    assert job.wait(30)
    pool.release(job)
    assert not pool._jobs


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError("x"), "structured-output backend 'one' ran out of memory with a grammar: it x"),
        (
            BrokenCompilerError("KeyError: 1"),
            "structured-output backend 'one' failed to compile a grammar: KeyError: 1",
        ),
    ],
)
def test_a_backend_that_runs_out_of_memory_or_breaks_is_one_log_line(caplog, error, line):
    def compile(kind, value, turn):
        raise error

    pool = pooled(compile)
    job = pool.submit(Grammar("choice", "a"))
    assert job.wait(30) and job.failed
    assert [(record.message, record.exc_info) for record in caplog.records] == [(line, None)]
