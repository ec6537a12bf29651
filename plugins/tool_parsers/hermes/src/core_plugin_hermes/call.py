"""One call: the object `{"name": ..., "arguments": {...}}` between the tags, read while it arrives."""

from __future__ import annotations

import json
import re
from enum import Enum, auto

from core.api import ToolArguments, ToolEnd, ToolStart
from core.api.parsers import ParseEvent
from core_plugin_hermes.scanner import JsonScanner

_SPACE = " \t\r\n"
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Expect(Enum):
    OPEN = auto()
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    NEXT = auto()


class Call:
    """A call in the making. Its start is announced once its name and the beginning of its arguments are known.

    Attributes:
        done: The object is complete.
        failed: It is not a call; `feed` stopped at what is wrong.
        started: `ToolStart` was returned, so that an end must follow.
    """

    def __init__(self, index: int) -> None:
        self.done = False
        self.failed = False
        self.started = False
        self._index = index
        self._name: str | None = None
        self._early: list[str] = []  # arguments that came before the name
        self._arguments_done = False
        self._expect = _Expect.OPEN
        self._first = True
        self._key = ""
        self._scanner: JsonScanner | None = None
        self._value: list[str] = []
        self._events: list[ParseEvent] = []

    def feed(self, text: str, start: int) -> int:
        """Read `text` from `start`; return where reading stopped: its end, or the end or first error of the call."""
        position = start
        while position < len(text) and not self.done and not self.failed:
            if self._scanner is not None:
                position = self._scan(self._scanner, text, position)
            elif text[position] in _SPACE:
                position += 1
            else:
                position = self._token(text[position], position)
        return position

    def take(self) -> list[ParseEvent]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def close(self) -> list[ParseEvent]:
        """End a started call: the arguments become complete, valid JSON."""
        events = self.take()
        if self._arguments_done:
            closing = ""
        elif self._scanner is not None:
            closing = self._scanner.closing()
        else:
            closing = "{}"
        if closing:
            events.append(ToolArguments(self._index, closing))
        return [*events, ToolEnd(self._index)]

    def _token(self, char: str, position: int) -> int:
        expect = self._expect
        if expect is _Expect.OPEN and char == "{":
            self._expect = _Expect.KEY
        elif (expect is _Expect.KEY and char == '"') or expect is _Expect.VALUE:
            return self._begin_scan(char, position)
        elif expect is _Expect.COLON and char == ":":
            self._expect = _Expect.VALUE
        elif expect is _Expect.NEXT and char == ",":
            self._expect, self._first = _Expect.KEY, False
        elif char == "}" and (expect is _Expect.NEXT or (expect is _Expect.KEY and self._first)):
            self._finish()
        else:
            self.failed = True
        return position + (not self.failed)

    def _begin_scan(self, char: str, position: int) -> int:
        if self._expect is _Expect.VALUE and self._key == "arguments":
            if char not in '{"n' or self._arguments_done:
                self.failed = True
                return position
            if char == "{" and self._name is not None:
                self._announce(self._name)
        self._scanner = JsonScanner()
        return position

    def _scan(self, scanner: JsonScanner, text: str, position: int) -> int:
        position = scanner.feed(text, position)
        self.failed = scanner.failed
        piece = scanner.take()
        if self.started and self._expect is _Expect.VALUE and self._key == "arguments":
            if piece:
                self._events.append(ToolArguments(self._index, piece))
            self._arguments_done = scanner.done
        else:
            self._value.append(piece)
        if scanner.done:
            self._scanner = None
            self._scanned()
        return position

    def _scanned(self) -> None:
        text = "".join(self._value)
        self._value.clear()
        if self._expect is _Expect.KEY:
            self._key = json.loads(text)
            self._expect = _Expect.COLON
            return
        self._expect = _Expect.NEXT
        if self._key == "name":
            self._named(_as_text(text))
        elif self._key == "arguments" and not self.started:
            self._argued(text)

    def _named(self, name: str | None) -> None:
        if not name or self._name is not None:
            self.failed = True
            return
        self._name = name
        if self._arguments_done:
            self._announce(name)
            self._events.append(ToolArguments(self._index, "".join(self._early)))

    def _argued(self, text: str) -> None:
        """Take arguments that could not be passed on while they arrived: a text, null, or the name is missing."""
        arguments = _as_object(text)
        if arguments is None:
            self.failed = True
            return
        self._arguments_done = True
        self._early.append(arguments)
        if self._name is not None:
            self._announce(self._name)
            self._events.append(ToolArguments(self._index, arguments))

    def _announce(self, name: str) -> None:
        self.started = True
        self._events.append(ToolStart(self._index, name))

    def _finish(self) -> None:
        if self._name is None:
            self.failed = True
            return
        if not self.started:
            self._announce(self._name)
        self._events = self.close()
        self.done = True


def _as_text(text: str) -> str | None:
    """Return the text that a JSON string stands for; None for other values and for text that UTF-8 cannot hold."""
    if not text.startswith('"'):
        return None
    value: str = json.loads(text)
    return value if value.isascii() or not _SURROGATE.search(value) else None


def _as_object(text: str) -> str | None:
    """Return the JSON object that `text` is, or that the JSON string `text` holds; `{}` for null; else None."""
    if text == "null":
        return "{}"
    if text.startswith("{"):
        return text
    inner = (_as_text(text) or "").strip()
    scanner = JsonScanner()
    end = scanner.feed(inner, 0)
    return scanner.take() if inner.startswith("{") and scanner.done and end == len(inner) else None
