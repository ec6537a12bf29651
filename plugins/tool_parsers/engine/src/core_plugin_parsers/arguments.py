"""Arguments that arrive one parameter at a time, as text, written as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from core_plugin_parsers.reader import CallSink
from core_plugin_parsers.typed import is_text, parameter_types, to_json


class Arguments:
    """The arguments of the call that was started last.

    A text is passed on while it arrives, everything else when it is complete, because only then its type is certain.

    Args:
        trim: A line break at the beginning and at the end of a value belongs to the format.
    """

    def __init__(self, sink: CallSink, tool: str, *, trim: bool = True) -> None:
        self._sink, self._trim = sink, trim
        self._schema: Mapping[str, Any] | None = sink.tools.get(tool)
        self._written: set[str] = set()
        self._types: frozenset[str] = frozenset()
        self._streams = False
        self._value: list[str] = []  # what has not been passed on
        self._empty = True  # nothing of the value was seen

    def begin(self, name: str, *, is_string: bool | None = None) -> bool:
        """Begin a parameter; `is_string` is what the format itself says. A repeated one is refused: return False."""
        if name in self._written:
            return False
        self._types = parameter_types(self._schema, name)
        if is_string is not None:
            self._types = frozenset({"string"}) if is_string else self._types - {"string"}
        self._sink.arguments(("{" if not self._written else ", ") + json.dumps(name, ensure_ascii=False) + ": ")
        self._written.add(name)
        self._streams, self._value, self._empty = is_text(self._types), [], True
        if self._streams:
            self._sink.arguments('"')
        return True

    def add(self, text: str) -> None:
        """Take a piece of the value."""
        if not text:
            return
        if self._empty and self._trim:
            text = text.removeprefix("\n")
        self._empty = False
        self._value.append(text)
        if self._streams:
            whole = "".join(self._value)
            held = "\n" if self._trim and whole.endswith("\n") else ""
            self._sink.arguments(_escaped(whole[: len(whole) - len(held)]))
            self._value = [held]

    def end(self) -> None:
        """End the value."""
        text = "".join(self._value)
        if self._trim:
            text = text.removesuffix("\n")
        self._sink.arguments(f'{_escaped(text)}"' if self._streams else to_json(text, self._types))

    def close(self) -> None:
        """End the object."""
        self._sink.arguments("}" if self._written else "{}")


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
