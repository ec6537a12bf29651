"""Calls written as Python calls with literal arguments: `[f(a=1), g(b="x")]`."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from typing import Any

from core_plugin_parsers.reader import CallSink
from core_plugin_parsers.tags import UNDECIDED, literal_at, skip_space

_HEAD = re.compile(r"[A-Za-z_][\w.-]{0,255}")
_STOPS = re.compile(r"[()\[\]{}\"'\\]")
_LITERAL = re.compile(
    r"""(?P<long>(\"\"\"|''')(?:(?:[^\\]|\\.)*?\2|.*))"""
    r"""|(?P<text>"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*'|["'].*)"""
    r"""|(?<![\w.])0+(?=\d)""",
    re.DOTALL,
)
"""Texts, so that nothing in them is taken for a number, and the zeros in front of a number.

A quote without an end takes the rest, so that nothing is searched twice.
"""

_BREAK = re.compile(r"\\.|[\r\n]", re.DOTALL)
_BREAKS = {"\r": r"\r", "\n": r"\n"}
_WORDS = {"null": None, "true": True, "false": False}
_OPENS, _CLOSES = "([{", ")]}"
_MOST_DEPTH = 100


@dataclass(frozen=True)
class PythonCalls:
    """Python calls with literals only; nothing is evaluated. JSON's `null`, `true` and `false` count as literals.

    Attributes:
        closes: Tags that end the block. Without one it ends behind the list.
        bracketed: The calls stand in a list; otherwise on lines.
    """

    closes: tuple[str, ...] = ()
    bracketed: bool = True

    def reader(self, sink: CallSink) -> PythonCallsReader:
        """Return a reader for one block."""
        return PythonCallsReader(self, sink)


class PythonCallsReader:
    """`Reader` of `PythonCalls`. A call is known when its parenthesis closes; one that breaks off is text."""

    def __init__(self, form: PythonCalls, sink: CallSink) -> None:
        self.ended = False
        self.failed = False
        self._form, self._sink = form, sink
        self._in_list = not form.bracketed
        self._listed = False  # the list has begun
        self._comma = True  # a call may stand here
        self._calls = 0
        self._text: list[str] = []  # the call so far
        self._open: list[str] = []  # its open brackets
        self._quote = ""
        self._escaped = False

    def feed(self, data: str, start: int) -> int:
        """Read on; see `Reader`."""
        position, calls = start, self._calls
        while position < len(data) and not self.failed and not self.ended and self._calls == calls:
            before = position
            position = self._call(data, position) if self._open else self._between(data, position)
            if position == before:
                break
        return position

    def finish(self) -> None:
        """End the message."""
        self.ended = self._calls > 0 and not self._text and not self._form.closes

    def _between(self, data: str, start: int) -> int:
        position = skip_space(data, start)
        if position == len(data):
            return position
        literal = literal_at(data, position, self._form.closes)
        if literal == UNDECIDED:
            return position
        if literal is not None:
            self.ended = self._listed or self._calls > 0
            self.failed = not self.ended
            return position + len(literal)
        return self._token(data, position)

    def _token(self, data: str, position: int) -> int:
        char = data[position]
        if char == "[" and not self._in_list and not self._calls:
            self._in_list = self._listed = True
        elif char == "]" and self._in_list and self._form.bracketed:
            self._in_list = False
            self.ended = not self._form.closes and self._calls > 0
            self.failed = not self._form.closes and not self._calls
        elif char == "," and self._calls and not self._comma:
            self._comma = True
        else:
            return self._head(data, position)
        return position + 1

    def _head(self, data: str, position: int) -> int:
        """Read a function's name and its parenthesis."""
        found = _HEAD.match(data, position) if self._in_list and (self._comma or not self._form.bracketed) else None
        end = position if found is None else skip_space(data, found.end())
        if found is not None and end == len(data):
            return position
        if found is None or data[end] != "(":
            self.failed = True
            return position
        self._text, self._open = [data[position : end + 1]], [")"]
        return end + 1

    def _call(self, data: str, position: int) -> int:
        """Read on in a call, to its closing parenthesis."""
        while position < len(data) and self._open:
            if self._escaped:
                self._escaped, end = False, position + 1
            else:
                found = _STOPS.search(data, position)
                end = len(data) if found is None else found.end()
                if found is not None:
                    self._stop(found[0])
            self._text.append(data[position:end])
            position = end
            if self.failed:
                return position
        if not self._open:
            self._known("".join(self._text))
        return position

    def _stop(self, char: str) -> None:
        if self._quote:
            self._escaped = char == "\\"
            self._quote = "" if char == self._quote else self._quote
        elif char in "\"'":
            self._quote = char
        elif char in _OPENS:
            self._open.append(_CLOSES[_OPENS.index(char)])
            self.failed = len(self._open) > _MOST_DEPTH
        elif char in _CLOSES:
            self.failed = self._open.pop() != char
        else:
            self.failed = True

    def _known(self, text: str) -> None:
        call = literal_call(text)
        if call is None:
            self.failed = True
            return
        self._sink.whole(*call)
        self._text, self._comma = [], False
        self._calls += 1


def literal_call(text: str) -> tuple[str, str] | None:
    """Return the name and the JSON arguments of one Python call; None unless its arguments are keyword literals.

    Models also write what Python refuses: line breaks in texts, and numbers that begin with zeros.
    """
    return _literal_call(text) or _literal_call(_LITERAL.sub(_repaired, text))


def _repaired(found: re.Match[str]) -> str:
    """Return a text with its line breaks escaped, and nothing for zeros in front of a number."""
    if found["text"] is None:
        return found["long"] or ""
    return _BREAK.sub(lambda one: _BREAKS.get(one[0], one[0]), found["text"])


def _literal_call(text: str) -> tuple[str, str] | None:
    name, _, rest = text.partition("(")
    try:
        call = ast.parse(f"_({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            return None
        arguments = {str(word.arg): _value(word.value) for word in call.keywords if word.arg is not None}
        if len(arguments) != len(call.keywords):
            return None
        return name.strip(), json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Name) and node.id in _WORDS:
        return _WORDS[node.id]
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [_value(key) for key in node.keys if key is not None]
        if not all(isinstance(key, str) for key in keys) or len(keys) != len(node.values):
            raise ValueError("keys are texts")
        return dict(zip(keys, map(_value, node.values)))
    return ast.literal_eval(node)
