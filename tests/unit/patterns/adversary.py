"""Texts on which a regular expression with superlinear cases takes long, made from its own parse tree."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

LENGTHS = [8, 12, 16, 18, 20, 22, 24, 26, 28, *(2**power for power in range(5, 16))]
SLACK = 0.02
"""Seconds of processor time that are nothing."""
_COMMON = "a0 \n"
_CLASSES = {ops.CATEGORY_DIGIT: "0", ops.CATEGORY_SPACE: " ", ops.CATEGORY_WORD: "a"}
_OTHERS = {ops.CATEGORY_NOT_DIGIT: "a", ops.CATEGORY_NOT_SPACE: "a", ops.CATEGORY_NOT_WORD: " "}
_REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)


def texts(source: str, flags: int) -> list[tuple[str, str, str]]:
    """Return beginnings, what is repeated after them, and ends."""
    tree = _parser.parse(source, flags)
    letters = "".join(dict.fromkeys(_letters(tree)))[:10]
    pieces = list(dict.fromkeys([*letters, *_COMMON, *_repeated(tree)]))
    starts = list(dict.fromkeys(["", *_before(tree, "")]))[:8]
    pumps = [(start, piece) for start in starts for piece in pieces]
    pumps += [("", start + piece) for start in starts if start for piece in ("", *pieces[:6])]
    return [(start, piece, end) for start, piece in dict.fromkeys(pumps) if piece for end in ("", "\x00")]


def worst(run: Callable[[str], object], candidates: list[tuple[str, str, str]]) -> tuple[str, float, float] | None:
    """Return a text which, at most doubled, takes more than three times as long, with both times; None without one."""
    for start, piece, end in candidates:
        last = 0.0
        for length in LENGTHS:
            text = start + piece * (length // len(piece)) + end
            spent = _time(run, text)
            if spent > 3 * last + SLACK and (spent := min(spent, _time(run, text))) > 3 * last + SLACK:
                return f"{start!r} + {piece!r} * {length // len(piece)} + {end!r}", last, spent
            last = spent
    return None


def _time(run: Callable[[str], object], text: str) -> float:
    began = time.process_time()
    run(text)
    return time.process_time() - began


def _letters(tree: Any) -> Iterator[str]:
    for op, value in tree:
        if op in (ops.LITERAL, ops.NOT_LITERAL):
            yield chr(value)
        elif op is ops.IN:
            yield sample_class(value)
        else:
            for part in _parts(op, value):
                yield from _letters(part)


def _parts(op: Any, value: Any) -> list[Any]:
    """Return the trees inside a node."""
    if op in _REPEATS:
        return [value[2]]
    if op is ops.SUBPATTERN:
        return [value[3]]
    if op is ops.BRANCH:
        return list(value[1])
    if op in (ops.ASSERT, ops.ASSERT_NOT):
        return [value[1]]
    return [value] if op is ops.ATOMIC_GROUP else []


def _repeated(tree: Any) -> Iterator[str]:
    """Yield a sample of each repeated part."""
    for op, value in tree:
        if op in _REPEATS and value[1] > 50:
            yield sample(value[2])
        for part in _parts(op, value):
            yield from _repeated(part)


def _before(tree: Any, start: str) -> Iterator[str]:
    """Yield what may come before each repeated part."""
    for op, value in tree:
        if op in _REPEATS and value[1] > 50:
            yield start
        for part in _parts(op, value):
            yield from _before(part, start)
        start += sample([(op, value)])


def sample(tree: Any) -> str:
    """Return a text that a tree matches, as far as can be seen without effort."""
    return "".join(_one(op, value) for op, value in tree)


def _one(op: Any, value: Any) -> str:
    if op is ops.LITERAL:
        return chr(value)
    if op is ops.NOT_LITERAL:
        return "a" if value != ord("a") else "b"
    if op is ops.ANY:
        return "a"
    if op is ops.IN:
        return sample_class(value)
    if op in _REPEATS:
        return sample(value[2]) * max(value[0], 1 if value[1] < 50 else 0)
    if op is ops.BRANCH:
        return sample(value[1][0])
    return sample(value[3]) if op is ops.SUBPATTERN else sample(value) if op is ops.ATOMIC_GROUP else ""


def sample_class(items: Any) -> str:
    """Return a character of a class."""
    if items[0][0] is ops.NEGATE:
        excluded = {chr(value) for op, value in items if op is ops.LITERAL}
        return next(char for char in "a0 _<{[(\"'!" if char not in excluded)
    op, value = items[0]
    if op is ops.LITERAL:
        return chr(value)
    if op is ops.RANGE:
        return chr(value[0])
    return _CLASSES.get(value) or _OTHERS[value]
