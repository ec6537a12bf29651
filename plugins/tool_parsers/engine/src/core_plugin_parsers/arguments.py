"""Arguments that arrive one parameter at a time, as text, written as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from core_plugin_parsers.reader import CallSink
from core_plugin_parsers.typed import is_text, parameter_types, said_types, to_json


class Arguments:
    """The arguments of the call that was started last.

    A text is passed on while it arrives, everything else when it is complete, because only then its type is certain.

    Args:
        trim: The format writes a line break on both sides of each value. Without that, a value is what stands between
            its tags, white space included.
    """

    def __init__(self, sink: CallSink, tool: str, *, trim: bool = False) -> None:
        self._sink, self._trim = sink, trim
        self._schema: Mapping[str, Any] | None = sink.tools.get(tool)
        self._written: set[str] = set()
        self._types: frozenset[str] = frozenset()
        self._streams = False
        self._value: list[str] = []  # what has not been passed on
        self._empty = True  # nothing of the value was seen

    def begin(self, name: str, *, is_string: bool | None = None) -> bool:
        """Begin a parameter. A repeated one is refused: return False.

        Args:
            is_string: What the message says of the value, where the format has a word for it. It decides where the
                tool's schema leaves a choice.
        """
        if name in self._written:
            return False
        self._types = said_types(parameter_types(self._schema, name), is_string)
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
