"""vLLM's flags that are no options here: each is accepted, put into our words, or refused with a sentence.

The table is in `table`. A value is accepted only if it asks for what happens anyway; what would have
been ignored is refused.
"""

from __future__ import annotations

import re
import types
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from core.api import ConfigError
from core_plugin_vllm_flags.rows import ANY, OFF, ON, Foreign
from core_plugin_vllm_flags.table import TABLE

_NUMBER = re.compile(r"-\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Typed:
    """A flag of the table as it was typed.

    Attributes:
        flag: With its dashes, without a value.
        value: What came with it (`=` or attached), `true` or `false` for a switch.
        part: Whether it sets one key of a JSON value (`--flag.key`).
    """

    row: Foreign
    flag: str
    value: str | None = None
    part: bool = False


def translate(words: Sequence[str], known: Collection[str]) -> list[str]:
    """Return a command line without foreign flags: accepted ones are left out, mapped ones replaced.

    Args:
        known: Flags that are options here; they are passed on as they are.

    Raises:
        ConfigError: A flag is refused (CORE-C105) or lacks its value (CORE-C104).
    """
    given = _values(words)
    left, result = deque(words), []
    while left:
        word = left.popleft()
        typed = None if word.partition("=")[0] in known else find(word)
        if typed is None:
            result.append(word)
        else:
            result += judge(typed, _value(typed, left), given)
    return result


def judge(typed: Typed, value: str, given: Mapping[str, str] = types.MappingProxyType({})) -> list[str]:
    """Return the words that stand for a flag with this value; none if it asks for nothing that is not so anyway.

    Args:
        given: Flags that stand beside it, and what follows each.

    Raises:
        ConfigError: CORE-C105, with the table's sentence.
    """
    row = typed.row
    if not typed.part:
        words = row.words.get(value, row.words.get(ANY))
        if words is not None:
            return [word.format(value) for word in words]
        helped = not row.needs or any(flag in given for flag in row.needs)
        if helped and (value in row.fine or ANY in row.fine):
            return []
        if row.same and given.get(row.same) == value:
            return []
    shown = typed.flag if not row.takes else f"{typed.flag} {value}"
    raise ConfigError("CORE-C105", f"{shown} is not supported.", hint=row.why)


def find(word: str) -> Typed | None:
    """Return the row of a typed flag: `--name`, `--no-name`, `--name=value`, `--name.key`, `-x`, `-x2`; or None."""
    if not word.startswith("-") or _NUMBER.fullmatch(word):
        return None
    flag, equals, value = word.partition("=")
    name = flag.replace("_", "-") if flag.startswith("--") else flag
    rows = by_name()
    base, dot, _ = name.partition(".")
    if base in rows:
        return Typed(rows[base], flag, _switch(rows[base], value if equals else None, ON), bool(dot))
    if name.startswith("--no-") and (row := rows.get("--" + name[5:])) and not row.takes:
        return Typed(row, flag, OFF)
    short = name.rstrip("0123456789")
    return Typed(rows[short], short, name[len(short) :]) if short != name and short in rows else None


def key_settings(key: str, value: Any) -> Iterator[tuple[str, Any]] | None:
    """Return `(key, value)` of the options that a foreign key of a configuration file stands for.

    None means that the key is not foreign. Raises `ConfigError` CORE-C105 as `judge`.
    """
    typed = find(f"--{key.rpartition('.')[2]}")
    if typed is None:
        return None
    text = (ON if value else OFF) if isinstance(value, bool) else str(value)
    return _pairs(judge(typed, text))


def describe(name: str) -> list[str] | None:
    """Return lines that say what a flag of vLLM's means here; None if the name is no such flag."""
    rows = by_name()
    row = rows.get(name) or rows.get("--" + name.removeprefix("--").replace("_", "-"))
    if row is None:
        return None
    mapped = [f"{value}: {' '.join(words).replace('{}', 'X')}" for value, words in row.words.items()]
    accepted = "; ".join(["any" if value == ANY else value for value in row.fine] + mapped)
    return [
        f"{', '.join(row.names)}: a flag of vLLM that is no option here",
        f"  accepted     {accepted or 'no value'}",
        *([f"  otherwise    {row.why}"] if row.why else []),
    ]


@cache
def by_name() -> dict[str, Foreign]:
    """Return the table by every spelling, dashes included."""
    return {name: row for row in TABLE for name in row.names}


def _values(words: Sequence[str]) -> dict[str, str]:
    """Return every flag with the text behind its `=`, or else with the next word."""
    split = [(*word.partition("="), after) for word, after in pairwise([*words, ""])]
    return {flag: value if equals else after for flag, equals, value, after in split if flag.startswith("-")}


def _switch(row: Foreign, value: str | None, plain: str) -> str | None:
    return plain if not row.takes and value is None else value


def _value(typed: Typed, left: deque[str]) -> str:
    """Return the flag's value, taken from the words that follow if it did not come with it."""
    if typed.value is not None:
        return typed.value
    values: list[str] = []
    while left and len(values) != typed.row.takes and (_NUMBER.fullmatch(left[0]) or not left[0].startswith("-")):
        values.append(left.popleft())
    if typed.row.takes > 0 and not values:
        raise ConfigError("CORE-C104", f"{typed.flag}: expected a value.", hint=typed.row.why)
    return " ".join(values)


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for flag, value in zip(words[::2], words[1::2], strict=True):
        if flag == "--opt":
            target, _, text = value.partition("=")
            name, _, key = target.partition(".")
            yield "runtime.plugin_options", {name: {key: text}}
        else:
            yield flag.removeprefix("--"), value
