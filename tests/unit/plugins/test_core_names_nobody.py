"""Core names no API, server, format, family or tool of others: identifiers and texts are read, docstrings are not."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = [path for path in sorted((ROOT / "core").rglob("*.py")) if "templates" not in path.relative_to(ROOT).parts]
KNOWN = tomllib.loads((ROOT / "core" / "plugins" / "known.toml").read_text())["released"]

_WORDS = """
    admin all auto bench chat compile complete cpu dense disk draw experts fallback generate grammar hub inc int8 kinds
    linear local lookup ls mapped none ones opt pool pooling priority ps pull recurrent render responses resume rm route
    run sampled seed show standard stats stop structured subprocess tools
"""
ORDINARY = frozenset(_WORDS.split())
"""Names of plugins that are words of the field, or of the language, and stand in core for what they say there."""

_NAMES = """
    anthropic bert cohere cuda deepseek flashinfer gemma gguf glm gpt2 huggingface jinja2 kimi llama llguidance mamba
    mcp minicpm mistral moe nemotron ollama openai qwen rocm safetensors sentencepiece sglang tiktoken triton vllm webui
    xgrammar xpu
"""
OTHERS = frozenset(_NAMES.split())
"""Names of others that no plugin has as its own."""

OPTION = "an option that users have, which will move with its plugin's own flags"
EXAMPLE = "an example in a message"
WHY: dict[str, dict[str, str]] = {
    "openai": {
        "core/api/templates.py": "transformers' word for contents that are lists of parts",
        "core/options/model.py": "the same, as an option",
        "core/frontend/model.py": "the same, as an option",
    },
    "fp8": {
        "core/options/engine.py": "a dtype of the KV cache",
        "core/selection/kv_dtype.py": "the same, as checkpoints name it",
    },
    "hermes": {
        "core/cli/plugins/install.py": EXAMPLE,
        "core/cli/plugins/parse.py": EXAMPLE,
        "core/config/load.py": EXAMPLE,
    },
    "gguf": {
        "core/cli/env.py": "a package whose version a bug report needs",
        "core/engine/readahead.py": "files that are read ahead, by their endings",
    },
    "safetensors": {
        "core/cli/env.py": "a package whose version a bug report needs",
        "core/engine/readahead.py": "files that are read ahead, by their endings",
        "core/selection/checkpoints.py": "what to ask for instead of a file that names no architecture",
    },
    "triton": {"core/cli/env.py": "a package whose version a bug report needs"},
    "beam": {
        "core/__init__.py": "beam search is the offline interface's own",
        "core/frontend/async_llm.py": "beam search is the offline interface's own",
        "core/frontend/beams/calls.py": "beam search is the offline interface's own",
        "core/frontend/beams/outputs.py": "beam search is the offline interface's own",
        "core/frontend/beams/search.py": "beam search is the offline interface's own",
        "core/frontend/beams/stream.py": "beam search is the offline interface's own",
        "core/frontend/llm.py": "beam search is the offline interface's own",
        "core/frontend/request.py": "requests may ask for a beam search",
        "core/server/serving/rendered.py": "requests may ask for a beam search",
        "core/server/serving/request.py": "requests may ask for a beam search",
    },
    "llama3": {
        "core/api/rotary.py": "transformers' name of a rotary scaling, which checkpoints write",
        "core/ops/rotary.py": "transformers' name of a rotary scaling, which checkpoints write",
    },
    "hf": {
        "core/cli/env.py": "variables of the environment that a bug report needs",
        "core/config/fields.py": OPTION,
        "core/options/model.py": OPTION,
        "core/options/names.py": OPTION,
        "core/selection/overrides.py": OPTION,
        "core/selection/patching.py": OPTION,
        "core/selection/stores.py": OPTION,
    },
    "qwen3": {"core/selection/overrides.py": "a key of checkpoints' configurations that overrides may set"},
    "aiter": {
        "core/frontend/gather.py": "Python's `__aiter__`",
        "core/frontend/output_stream.py": "Python's `__aiter__`",
    },
    "jinja": {"core/selection/parsers.py": "the name of a checkpoint's file"},
}
"""Name -> the files that have it, and why they may. Whatever is taken out of core is taken out here."""


def others() -> frozenset[str]:
    """Return the names that core must not know: those of the repository's plugins, and of others."""
    lists = (names for row in KNOWN.values() for names in row.values() if isinstance(names, list))
    words = {word.lower() for names in lists for word in names if re.fullmatch(r"[a-z][a-z0-9]{1,20}", word)}
    return (words | OTHERS) - ORDINARY


def said(tree: ast.AST) -> Iterator[str]:
    """Yield identifiers and texts of a module, but for its docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield name
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def words(text: str) -> set[str]:
    """Return the words of a text or an identifier, in lower case."""
    return set(re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower()))


@cache
def holders() -> dict[str, set[str]]:
    """Return the files that say each name."""
    found: dict[str, set[str]] = {}
    wanted = others()
    for path in SOURCES:
        here = {word for text in said(ast.parse(path.read_text(encoding="utf-8"))) for word in words(text)} & wanted
        for word in here:
            found.setdefault(word, set()).add(path.relative_to(ROOT).as_posix())
    return found


def test_core_names_nobody_but_those_with_a_reason():
    extra = {word: sorted(files - set(WHY.get(word, ()))) for word, files in holders().items()}
    assert {word: files for word, files in extra.items() if files} == {}


@pytest.mark.parametrize("name", WHY)
def test_a_reason_that_is_no_longer_needed_is_taken_out(name):
    assert set(WHY[name]) <= holders().get(name, set())


@pytest.mark.parametrize("text", ["OpenAIRoutes", "core_plugin_llama", "served by Ollama", "gguf:Q4_1"])
def test_a_name_is_found_wherever_it_stands(text):
    assert words(text) & (others() | {"open"})
