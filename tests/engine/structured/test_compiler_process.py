"""A compiler in a process of its own: killed when it takes too long, replaced when it breaks, bounded in memory."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from core_plugin_llguidance.backend import LLGuidance
from core_plugin_structured.compiling.child import Order
from core_plugin_structured.compiling.memory import footprint
from core_plugin_structured.compiling.pool import CompilePool, Compiler, PoolLimits
from core_plugin_structured.compiling.remote import CompilerProcess, IsolatedCompiler
from core_plugin_structured.compiling.turn import AbandonedError, BrokenCompilerError, Turn
from core_plugin_xgrammar.backend import XGrammar

from core.api import StructuredContext
from core.api.grammars import Grammar
from core.engine.driven import written
from core.frontend.overrides import options_with
from core.selection.resolver import resolve

BACKENDS = {"xgrammar": XGrammar, "llguidance": LLGuidance}
MANY = "[" + ",".join(f'"{number:07}"' for number in range(60_000)) + "]"
LITERALS = "root ::= " + " ".join(f'"w{number:06}"' for number in range(20_000))
SOME = json.dumps([f"{number:07}" for number in range(1000)])


@pytest.fixture(scope="module")
def config(tiny):
    options = options_with(
        None, {"model": tiny, "dtype": "float32", "num_blocks": 40, "structured_output": "xgrammar,llguidance"}
    )
    return resolve(options).config


def order(config, name, memory=2**30):
    text = written(config, "core.structured_output", name)
    return Order(text, name, 60.0, memory, config.shape.vocab_size)


class Isolated(IsolatedCompiler):
    """Compiles without a turn given, and returns the grammar alone."""

    seconds = 60.0

    def compile(self, kind, value, turn=None):
        return super().compile(kind, value, turn or Turn(self.seconds))[0]


@pytest.fixture
def isolated(config, kit_tokenizer):
    made = []

    def make(memory=2**30, name="xgrammar"):
        backend = BACKENDS[name](StructuredContext(kit_tokenizer.vocab_size, lambda: kit_tokenizer))
        made.append(Isolated(order(config, name, memory), lambda kind, value, data: backend.load(data)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def process_of(compiler):
    """Return the idle process of a compiler, which keeps it."""
    process = compiler._idle.get_nowait()
    compiler._idle.put(process)
    return process


def test_a_grammar_comes_back_ready_and_the_process_is_kept(isolated):
    compiler = isolated()
    for value in ("[0-9]+", "[a-z]{2}"):
        assert compiler.compile("regex", value).matcher().is_complete() is False
    first = process_of(compiler).pid
    compiler.compile("regex", "x+")
    assert process_of(compiler).pid == first
    with pytest.raises(ValueError, match="parenthesis is not closed"):
        compiler.compile("regex", "((")
    assert process_of(compiler).pid == first
    compiler.close()
    assert gone(first)


@pytest.mark.covers("GRAM-01")
def test_a_process_that_takes_too_long_is_killed_and_replaced(isolated):
    compiler = isolated()
    compiler.compile("regex", "a")
    process = process_of(compiler)
    os.kill(process.pid, signal.SIGSTOP)  # it will never answer
    compiler.seconds = 0.2
    with pytest.raises(ValueError, match=r"took more than 0\.2 seconds"):
        compiler.compile("regex", "b")
    assert gone(process.pid)
    compiler.seconds = 60.0
    assert compiler.compile("regex", "b").matcher()


def test_a_process_that_breaks_is_replaced(isolated):
    compiler = isolated()
    compiler.compile("regex", "a")
    os.kill(process_of(compiler).pid, signal.SIGKILL)
    with pytest.raises(ValueError, match="the compiler broke on it"):
        compiler.compile("regex", "b")
    assert compiler.compile("regex", "b").matcher()


def references(depth):
    """A schema of which each definition is two of the next: its text grows with the depth, what it means doubles."""
    both = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(depth)}
    last = {f"d{depth}": {"type": "string", "pattern": "^a+$"}}
    return json.dumps({"$ref": "#/$defs/d0", "$defs": {**both, **last}})


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("xgrammar", "choice", MANY),
        ("llguidance", "json_schema", references(24)),
        ("llguidance", "grammar", LITERALS),
        ("xgrammar", "grammar", LITERALS),  # without a word that C++ or Rust have for it
    ],
    ids=["choices", "references", "literals", "literals-xgrammar"],
)
def test_a_grammar_that_needs_too_much_memory_is_refused(isolated, caplog, name, kind, value):
    compiler = isolated(memory=96 * 2**20, name=name)
    kept = footprint()
    with pytest.raises(MemoryError):
        compiler.compile(kind, value)
    assert footprint().since(kept) < 8 * 2**20  # all of it was another process's
    assert compiler.compile("regex", "b").matcher() and not caplog.records


def test_a_grammar_for_which_there_is_no_memory_to_be_sent_is_one_that_needs_too_much(kit_tokenizer):
    class Full:
        def serialize_json(self):
            raise RuntimeError("std::bad_alloc")

    compiled = XGrammar(StructuredContext(kit_tokenizer.vocab_size, lambda: kit_tokenizer)).compile("regex", "a")
    compiled._handle = Full()
    with pytest.raises(MemoryError):
        compiled.dump()


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [("xgrammar", "choice", SOME), ("llguidance", "choice", SOME), ("llguidance", "json_schema", references(10))],
)
def test_what_a_compiled_grammar_takes_is_measured(isolated, name, kind, value):
    compiler = isolated(name=name)
    compiler.compile("regex", "a")
    sizes, kept = [], []
    before = footprint()
    for number in range(4):
        text = value.replace("0", str(number), 1) if kind == "choice" else value
        grammar, size = IsolatedCompiler.compile(compiler, kind, text, Turn(60.0))
        kept.append(grammar)
        sizes.append(size)
    took = footprint().since(before)
    assert took / 3 <= sum(sizes) <= took * 3 + 2**20


def test_one_that_nobody_waits_for_is_ended(isolated):
    compiler = isolated()
    compiler.compile("regex", "a")
    process = process_of(compiler)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(AbandonedError):
        compiler.compile("regex", "b", Turn(60.0, wanted=lambda: False))
    assert gone(process.pid)


def test_one_that_has_no_room_is_not_brought_here(config):
    def none(size):
        raise ValueError(f"{size} bytes are too many")

    compiler = IsolatedCompiler(order(config, "xgrammar"), lambda kind, value, data: pytest.fail("brought"))
    try:
        with pytest.raises(ValueError, match=r"\d{3,} bytes are too many"):
            compiler.compile("choice", SOME, Turn(60.0, room=none))
    finally:
        compiler.close()


def test_a_backend_that_cannot_be_started_says_why_in_one_line(config):
    compiler = IsolatedCompiler(order(config, "nobody"), lambda kind, value, data: None)
    with pytest.raises(BrokenCompilerError, match=r"^its process ended with status 1: .*CORE-P301"):
        compiler.compile("regex", "a", Turn(60.0))


def test_the_engine_prepares_itself_while_the_process_starts(config):
    seen = []
    compiler = IsolatedCompiler(
        order(config, "xgrammar"), lambda kind, value, data: data, lambda: seen.append(len(compiler._busy))
    )
    try:
        for value in ("a", "b"):
            compiler.compile("regex", value, Turn(60.0))
        assert seen == [0]  # once, before there was a process that is ready
    finally:
        compiler.close()


def test_a_process_without_an_engine_ends(config):
    process = CompilerProcess(order(config, "xgrammar"))
    process._process.stdin.close()
    process._process.wait(20)
    assert process._process.returncode == 0


def test_others_are_compiled_while_one_takes_long(isolated):
    compiler = isolated()
    pool = CompilePool(
        [Compiler("xgrammar", frozenset({"regex", "choice"}), super(Isolated, compiler).compile)], PoolLimits(workers=2)
    )
    try:
        compiler.compile("regex", "a")
        os.kill(process_of(compiler).pid, signal.SIGSTOP)
        stuck = pool.submit(Grammar("regex", "stuck"))
        while stuck.began is None or not compiler._idle.empty():
            time.sleep(0.001)
        quick = pool.submit(Grammar("regex", "quick"))
        assert quick.wait(60) and not stuck.done
        compiler.close()
        assert stuck.wait(60) and stuck.failed
    finally:
        pool.close()
