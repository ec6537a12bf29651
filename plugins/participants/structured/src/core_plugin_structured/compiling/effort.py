"""How much work a grammar is expected to be, from its text alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from core.api.grammars import JSON_KINDS, Grammar

EASY = 16 * 1024
"""Effort up to which a grammar is easy: the worker that is kept for such takes it."""

MOST = 2**40
"""An exponential one is not worked out any further."""

_PER_CHOICE, _PER_REPEAT, _PER_PART = 8, 64, 8
_MOST_REPEATS = 1000
_CHOICE = re.compile(r"[?*+|]")
_REPEAT = re.compile(r'\{\d{0,9},?(\d{1,9})\}|(?:min|max)(?:Length|Items|Properties)"\s{0,9}:\s{0,9}(\d{1,9})')
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"?|\[(?:[^\]\\]|\\.)*\]?|(?:#|//)[^\n]*|::=|:|[^\W\d][\w-]*', re.DOTALL)
"""Of EBNF or Lark: a text, a class of characters, a comment, a sign of definition, a name."""

Parts = dict[str, tuple[int, list[str]]]
"""By name: what a part has of its own, and the parts that it refers to, as often as it does."""


def effort(grammar: Grammar) -> int:
    """Return how much work a grammar is expected to be: its characters, and more for what multiplies its states.

    What it refers to counts as often as it is referred to, directly or not. It decides who waits for whom, never
    whether a grammar is compiled.
    """
    text = grammar.value[:EASY]  # a longer one is not easy anyway, and this is done between two steps
    repeats = sum(min(int(first or second), _MOST_REPEATS) for first, second in _REPEAT.findall(text))
    plain = len(grammar.value) + _PER_CHOICE * len(_CHOICE.findall(text)) + _PER_REPEAT * repeats
    return plain if plain > EASY else max(plain, _PER_PART * _expanded(_parts(grammar)))


def _parts(grammar: Grammar) -> Parts:
    if grammar.kind == "grammar":
        return _rules(grammar.value)
    if grammar.kind not in JSON_KINDS and grammar.kind != "structural_tag":
        return {}
    try:
        return _schemas(json.loads(grammar.value or "{}"))
    except (ValueError, RecursionError):
        return {}  # it is refused when it is compiled


def _rules(text: str) -> Parts:
    """Return the rules of EBNF or Lark."""
    parts: Parts = {}
    words = [word for word in _WORD.findall(text) if word[0] not in "#/"]
    name = ""
    for word, after in pairwise([*words, ""]):
        if after in ("::=", ":") and word[0] not in '"[:':
            name = word
        size, refers = parts.get(name, (0, []))
        parts[name] = (size + 1, refers)
        if word != name and word[0] not in '"[:':
            refers.append(word)
    return parts


def _schemas(document: Any) -> Parts:
    """Return what a JSON document refers to; a structural tag's schemas are documents of their own."""
    parts: Parts = {}
    roots = [document, *_inner(document)]
    for number, root in enumerate(roots):
        _gather(parts, root, number)
    return parts


def _inner(value: Any) -> Iterator[Any]:
    """Yield the schemas inside a structural tag."""
    if isinstance(value, list):
        for one in value:
            yield from _inner(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            if key == "json_schema":
                yield one
            else:
                yield from _inner(one)


def _gather(parts: Parts, root: Any, number: int) -> None:
    """Add a document's root and whatever is referred to in it."""
    left = ["#"]
    while left:
        path = left.pop()
        name = f"{number} {path}"
        if name in parts:
            continue
        inside = list(_everything(_at(root, path)))
        refers = [one["$ref"] for one in inside if isinstance(one, dict) and isinstance(one.get("$ref"), str)]
        parts[name] = (len(inside), [f"{number} {one}" for one in refers])
        left += refers


def _at(root: Any, path: str) -> Any:
    """Return what a reference means; None if it is nothing in the document."""
    value = root
    for step in path.removeprefix("#").split("/")[1:]:
        if isinstance(value, list):
            value = value[int(step)] if step.isdecimal() and int(step) < len(value) else None
        else:
            value = value.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(value, dict) else None
    return value


def _everything(value: Any) -> Iterator[Any]:
    """Yield a JSON value and all that it holds; definitions only where they are referred to."""
    yield value
    held = value if isinstance(value, list) else ()
    if isinstance(value, dict):
        held = [one for key, one in value.items() if key not in ("$defs", "definitions")]
    for one in held:
        yield from _everything(one)


def _expanded(parts: Mapping[str, tuple[int, list[str]]]) -> int:
    """Return the size of the largest part with all that it refers to in its place; what refers to itself ends there."""
    sizes: dict[str, int] = {}
    for first in parts:
        left = [(first, False)]
        while left:
            name, known = left.pop()
            own, refers = parts.get(name, (0, []))
            if known:
                sizes[name] = min(own + sum(sizes.get(one, 0) for one in refers), MOST)
            elif name not in sizes:
                sizes[name] = 0
                left.append((name, True))
                left += [(one, False) for one in refers]
    return max(sizes.values(), default=0)
