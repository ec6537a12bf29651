"""The engine and the worker name no feature: tasks and participants own them. What they read is their code's names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OWNERS = {"participants", "tasks"}
"""Folders whose files are the features."""

ASSEMBLY = "makes participants of the plan's plugins, a kind each"
WORDS: dict[str, dict[str, str]] = {
    "pooling": {},
    "pooled": {},
    "pools": {},
    "vector": {},
    "vectors": {},
    "lora": {},
    "media": {},
    "image": {},
    "audio": {},
    "video": {},
    "draft model": {},
    "grammar": {},
    "grammars": {},
    "structured": {},
    "mask": {
        "core/worker/sampling/forbidden.py": "bits of the tokens that a row may not sample, whoever forbids them",
        "core/worker/sampling/rng.py": "of 64 bits",
    },
    "masks": {},
    "connector": {"core/engine/assembly.py": ASSEMBLY, "core/worker/assembly.py": ASSEMBLY},
    "connectors": {"core/engine/assembly.py": ASSEMBLY, "core/worker/assembly.py": ASSEMBLY},
}
"""Word -> the files that have it in a name of theirs, and why they may."""

SOURCES = sorted(
    path
    for folder in ("core/engine", "core/worker")
    for path in (ROOT / folder).rglob("*.py")
    if OWNERS.isdisjoint(path.relative_to(ROOT).parts)
)


def names_in(tree: ast.AST) -> Iterator[str]:
    """Yield everything that code names: modules, classes, functions, variables, attributes and arguments."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield name
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):  # parts["..."]
            yield str(node.slice.value)


def words_of(name: str) -> str:
    """Return the words of `a_name`, `aName` or `A.name`, in lower case, with a blank around each."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return f" {' '.join(parts).lower()} "


@cache
def words_by_file() -> dict[str, frozenset[str]]:
    return {
        path.relative_to(ROOT).as_posix(): frozenset(map(words_of, names_in(ast.parse(path.read_text("utf-8")))))
        for path in SOURCES
    }


def holders(word: str) -> set[str]:
    """Return the files that have `word` in a name."""
    return {file for file, names in words_by_file().items() if any(f" {word} " in name for name in names)}


@pytest.mark.parametrize("word", WORDS)
def test_only_known_files_name_a_feature(word):
    assert holders(word) == set(WORDS[word]), f"take names with '{word}' into a task or a participant"


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("from some_plugin.engine import Pooling", "pooling"),
        ("import x.media.rows", "media"),
        ("new.pooling", "pooling"),
        ("StepResult(vectors=1)", "vectors"),
        ("def _settle_vectors(): ...", "vectors"),
        ("parts['lora']", "lora"),
        ("class DraftModelRunner: ...", "draft model"),
        ("_draft_model = 1", "draft model"),
        ("_CONNECTORS = 1", "connectors"),
        ("KVConnector", "connector"),
    ],
)
def test_a_name_is_found_however_it_is_written(code, word):
    assert any(f" {word} " in words_of(name) for name in names_in(ast.parse(code)))


@pytest.mark.parametrize("code", ["BlockPool", "pool.free", "'pooling'", "vectorize", "immediate", "median"])
def test_other_words_are_not(code):
    names = list(names_in(ast.parse(code)))
    assert not any(f" {word} " in words_of(name) for name in names for word in WORDS)


def test_the_sources_are_read():
    assert {"scheduler.py", "settle.py", "worker.py", "runner.py", "sampler.py"} <= {path.name for path in SOURCES}
