"""A compiler in a process of its own: killed when it takes too long, replaced when it breaks, bounded in memory."""

from __future__ import annotations

import os
import signal
import time

import pytest

from core.api import StructuredContext
from core.boot import resolve
from core.engine.compiling.child import Order
from core.engine.compiling.pool import CompilePool, Compiler, PoolLimits
from core.engine.compiling.remote import CompilerProcess, IsolatedCompiler
from core.engine.grammars import Grammar
from core.frontend.overrides import options_with

MANY = "[" + ",".join(f'"{number:07}"' for number in range(60_000)) + "]"


@pytest.fixture(scope="module")
def config(tiny):
    options = options_with(None, {"model": tiny, "dtype": "float32", "num_blocks": 40, "structured_output": "xgrammar"})
    return resolve(options).config.model_dump_json()


@pytest.fixture
def isolated(config, kit_tokenizer):
    from core_plugin_xgrammar.backend import XGrammar

    made = []

    def make(seconds=60.0, memory=2**30):
        backend = XGrammar(StructuredContext(kit_tokenizer.vocab_size, lambda: kit_tokenizer))
        made.append(IsolatedCompiler(Order(config, "xgrammar", seconds, memory), backend.load))
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
    compiler = isolated(seconds=60.0)
    compiler.compile("regex", "a")
    process = process_of(compiler)
    os.kill(process.pid, signal.SIGSTOP)  # it will never answer
    compiler._order.seconds = 0.2
    with pytest.raises(ValueError, match=r"took more than 0\.2 seconds"):
        compiler.compile("regex", "b")
    assert gone(process.pid)
    compiler._order.seconds = 60.0
    assert compiler.compile("regex", "b").matcher()


def test_a_process_that_breaks_is_replaced(isolated):
    compiler = isolated()
    compiler.compile("regex", "a")
    os.kill(process_of(compiler).pid, signal.SIGKILL)
    with pytest.raises(ValueError, match="the compiler broke on it"):
        compiler.compile("regex", "b")
    assert compiler.compile("regex", "b").matcher()


def test_a_grammar_that_needs_too_much_memory_is_refused(isolated):
    compiler = isolated(memory=96 * 2**20)
    with pytest.raises(ValueError, match=r"too much memory|broke on it|bad_alloc"):
        compiler.compile("choice", MANY)


def test_a_process_without_an_engine_ends(config):
    process = CompilerProcess(Order(config, "xgrammar", 60.0, 2**30))
    process._process.stdin.close()
    process._process.wait(20)
    assert process._process.returncode == 0


def test_others_are_compiled_while_one_takes_long(isolated):
    compiler = isolated(seconds=60.0)
    pool = CompilePool([Compiler("xgrammar", frozenset({"regex", "choice"}), compiler.compile)], PoolLimits(workers=2))
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
