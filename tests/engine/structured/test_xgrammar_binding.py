"""XGrammar's library is used without the Python package around it, and does not stand in that package's way."""

from __future__ import annotations

import subprocess
import sys

import pytest

ALONE = """
import sys
from core_plugin_xgrammar.binding import bindings
from core_plugin_xgrammar.manifest import XGRAMMAR
from core_plugin_xgrammar.backend import XGrammar
from core.api import StructuredContext
from core_tokenizers import tokenizer_from_directory

tokenizer = tokenizer_from_directory(sys.argv[1])
backend = XGrammar(StructuredContext(tokenizer.vocab_size, lambda: tokenizer))
before = set(sys.modules)
grammar = backend.compile("regex", "[0-9]+")
assert not backend.load(grammar.dump()).matcher().is_complete()
for name in ("torch", "transformers", "xgrammar"):
    assert name not in sys.modules, name
"""
AFTERWARDS = """
import xgrammar
assert xgrammar.TokenizerInfo and "torch" in sys.modules
assert not backend.compile("regex", "[a-z]+").matcher().is_complete()
"""
FIRST = """
import xgrammar
from core_plugin_xgrammar.binding import bindings
assert bindings().GrammarCompiler is xgrammar.compiler._core.GrammarCompiler
"""


@pytest.fixture
def run(kit_tokenizer, tmp_path):
    from core_testing.tinymodels import tiny_tokenizer

    folder = tiny_tokenizer(tmp_path / "tokenizer")

    def run(source):
        command = [sys.executable, "-c", source, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr

    return run


def test_neither_torch_nor_the_package_is_imported(run):
    run(ALONE)


def test_the_package_can_be_imported_afterwards_and_before(run):
    run(ALONE + AFTERWARDS)
    run(FIRST)
