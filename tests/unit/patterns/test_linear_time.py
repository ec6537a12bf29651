"""No regular expression takes more than linear time, whatever text comes: one that does holds its whole process.

Patterns are found in the sources of core and all plugins, and each is run over texts made from its own parse tree, in
doubling lengths. One that is put together at run time needs a line in `MADE` or `BOUNDED`.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import pytest
from core_plugin_jinja.plain_text import PlainText
from core_plugin_parsers.named_calls import NamedCalls
from core_plugin_parsers.tags import Finder
from core_plugin_parsers_hf.anchors import Anchor

from tests.unit.patterns.adversary import texts, worst
from tests.unit.patterns.sources import ALL_MATCHES, Found, bare_imports, found

TAGS = ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "<", "<<", "aaaa", "aa"]
ESCAPED = "|".join(map(re.escape, TAGS))
HF, PARSERS = (
    "plugins/tool_parsers/hf/src/core_plugin_parsers_hf",
    "plugins/tool_parsers/engine/src/core_plugin_parsers",
)
KIT = "plugins/commands/testing/src/core_testing/conformance"
LLGUIDANCE = "plugins/structured_output/llguidance/src/core_plugin_llguidance"
JINJA = "plugins/tokenizers/jinja/src/core_plugin_jinja"
NAMES = f"{PARSERS}/named_calls.py: self.name"
FAMILIES = ("core_plugin_parsers_json.families", "core_plugin_parsers_reasoning.families")


def plain_text(part: str) -> Callable[[], list[Any]]:
    return lambda: [getattr(getattr(PlainText(TAGS), part), "__self__", getattr(PlainText(TAGS), part))]


def names_of_calls() -> list[str]:
    """Return the patterns of names of all families."""
    for family in FAMILIES:
        import_module(family)
    gc.unfreeze()  # what is frozen is not told
    names = {one.name for one in gc.get_objects() if type(one) is NamedCalls}
    gc.freeze()
    assert names, "no family reads calls by their names any more"
    return sorted(names | {NamedCalls().name})


MADE: dict[str, Callable[[], Iterable[Any]]] = {
    "core/frontend/answering/marked.py: '|'.join(map(re.escape, texts)) or '(?!)'": lambda: [ESCAPED],
    "core/frontend/spelling.py: f'\\\\b{head[0]}\\\\b'": lambda: [r"\bmax_tokens\b"],
    f"{JINJA}/plain_text.py: '|'.join(starts) or '(?!)'": plain_text("_starts"),
    f"{JINJA}/plain_text.py: _any([MARK, *(text for text in texts if len(text) == 1)])": plain_text("_single"),
    f"{JINJA}/plain_text.py: _any({{MARK, *(text[0] for text in texts)}})": plain_text("_hint"),
    "core/worker/loading/names.py: '([^.]+)'.join(map(re.escape, begins.split('*')))": lambda: [
        r"model\.layers\.([^.]+)\.block\.experts\.([^.]+)\.w1\.",
        r"model\.layers\.",
    ],
    f"{LLGUIDANCE}/tags.py: f\"({{'|'.join(map(re.escape, names))}})\"": lambda: [f"({ESCAPED})"],
    NAMES: names_of_calls,
    f"{PARSERS}/tags.py: '|'.join(map(re.escape, self.literals)) or '(?!)'": lambda: [
        Finder(("<a>", "<|b|>", "<|bc|>"))._pattern
    ],
    f"{HF}/anchors.py: '|'.join(map(regex.escape, ordered))": lambda: [Anchor.of_literals(TAGS).pattern.pattern],
}
"""What is put together at run time: patterns as they come out."""

AWQ, TORCHAO = (f"plugins/quantization/{name}/src/core_plugin_{name}/config.py" for name in ("awq", "torchao"))
FP8 = "plugins/quantization/fp8/src/core_plugin_fp8/auto_round.py"
BOUNDED = {
    f"{AWQ}: f'(?:{{name}})$'": "a checkpoint's, over its own modules' names",
    f"{AWQ}: name": "compiled, and not matched",
    f"{FP8}: f'(?:{{name}})$'": "a checkpoint's, over its own modules' names",
    f"{FP8}: name": "compiled, and not matched",
    f"{TORCHAO}: name[3:]": "a checkpoint's, over its own modules' names",
    f"{TORCHAO}: name.removeprefix('re:') if name.startswith('re:') else ''": "compiled, and not matched",
    "core/cli/env.py: f'^{key}\\\\s*:\\\\s*(.*)$'": "over files of the system",
    f"{KIT}/areas/routes.py: ''.join((_part(part) for part in parts))": "over a plugin's own routes",
    "plugins/quantization/compressed_tensors/src/core_plugin_compressed_tensors/config.py: name[3:]": (
        "a checkpoint's, over its own modules' names"
    ),
    "plugins/quantization/compressed_tensors/src/core_plugin_compressed_tensors/config.py: pattern": (
        "compiled, and not matched"
    ),
    "plugins/quantization/gptq/src/core_plugin_gptq/config.py: name": "a checkpoint's, over its own modules' names",
    f"{HF}/anchors.py: source": "a checkpoint's: over a window of the text, ended after a time",
    f"{HF}/content.py: arguments['tag_pattern']": "a checkpoint's: ended after a time",
    f"{HF}/content.py: '|'.join((f'{{opens}}(.*?){{closes}}' for opens, closes in delimiters))": "ended after a time",
    'core/cli/env.py: \'("[^"]*(?:key|token|secret|passw|credential)[^"]*"\\\\s*:\\\\s*)"[^"]*"\'': (
        "over variables of the environment"
    ),
}
"""What may take more than linear time, and why that hurts nobody: it sees no text of users or models, or is ended."""

ALL = list(found())
STATIC = {one.place: one for one in ALL if one.pattern is not None and one.place not in BOUNDED}


def run_of(pattern: Any, method: str) -> Callable[[str], object]:
    """Return what uses a pattern as the sources do, to the last match."""
    every = method in ALL_MATCHES or method == "finditer"
    use = (lambda text: list(pattern.finditer(text))) if every else getattr(pattern, method)
    return (lambda text: use(text.encode())) if isinstance(pattern.pattern, bytes) else use


def source_of(pattern: Any) -> tuple[str, int]:
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    return source, pattern.flags & (re.VERBOSE | re.IGNORECASE | re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("place", STATIC)
def test_a_pattern_takes_linear_time(place):
    one = STATIC[place]
    for method in one.methods:
        assert (method, worst(run_of(one.pattern, method), texts(*source_of(one.pattern)))) == (method, None)


@pytest.mark.parametrize("place", MADE)
def test_a_pattern_that_is_put_together_takes_linear_time(place):
    for made in MADE[place]():
        pattern = re.compile(made)
        for method in ("fullmatch",) if place == NAMES else ("search", "match", "finditer"):
            assert (made, worst(run_of(pattern, method), texts(*source_of(pattern)))) == (made, None)


def test_every_pattern_is_accounted_for():
    assert not bare_imports()
    unknown = {one.place for one in ALL if one.pattern is None} - set(MADE) - set(BOUNDED)
    assert not unknown, "put together at run time: name it in MADE with samples, or in BOUNDED with the reason"
    assert not (set(MADE) | set(BOUNDED)) - {one.place for one in ALL}, "is not in the sources any more"
    assert len(ALL) > 100


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"(?m)^\s*(%llguidance\b|start\s*:)", "search"),  # of llguidance's own test of the dialect
        (r"(a+)+b", "match"),
        (r"\s+$", "search"),
        (r"\[[^\]]*\]", "sub"),
        (r"invoke\s+name\s*=\s*[\"']?([^\"'>]+?)[\"']?\s*", "fullmatch"),
        (r"([\w.:-]+)\s*=\s*\"", "findall"),
        (r"I?Q\d+(?:_\w+)*(?=$|[-./])", "findall"),
    ],
)
def test_patterns_that_take_longer_are_caught(pattern, method):
    found = Found("here", re.compile(pattern), (method,))
    assert worst(run_of(found.pattern, method), texts(*source_of(found.pattern))) is not None
