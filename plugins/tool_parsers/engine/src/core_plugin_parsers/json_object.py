"""One call as a JSON object, read while it arrives."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum, auto

from core_plugin_parsers.json_value import JsonScanner
from core_plugin_parsers.reader import CallSink
from core_plugin_parsers.tags import SPACE

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ObjectKeys:
    """Which members of the object say what.

    Attributes:
        name: Keys of the tool's name. Without any, the first key itself is the name, and its value the arguments.
        arguments: Keys of the arguments: an object, the text of one, or null.
        beside: Keys that may stand in front of the arguments, too, with values that are neither objects nor arrays;
            the arguments must come then, behind the name. None: any key, in any order, and arguments may be missing.
    """

    name: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    beside: tuple[str, ...] | None = None


class _Expect(Enum):
    OPEN = auto()
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    NEXT = auto()


class ObjectCall:
    """A call in the making. It is started once its name and the beginning of its arguments are known.

    Attributes:
        done: The object is complete, and the call has ended.
        failed: It is not a call; `feed` stopped at what is wrong.
    """

    def __init__(self, keys: ObjectKeys, sink: CallSink) -> None:
        self.done = False
        self.failed = False
        self._keys, self._sink = keys, sink
        self._name: str | None = None
        self._early: str | None = None  # arguments that came before the name
        self._arguments_done = False
        self._expect = _Expect.OPEN
        self._first = True
        self._key = ""
        self._scanner: JsonScanner | None = None
        self._value: list[str] = []

    def feed(self, text: str, start: int) -> int:
        """Read `text` from `start`; return where reading stopped: its end, or the end or first error of the call."""
        position = start
        while position < len(text) and not self.done and not self.failed:
            if self._scanner is not None:
                position = self._scan(self._scanner, text, position)
            elif text[position] in SPACE:
                position += 1
            else:
                position = self._token(text[position], position)
        if self.failed:
            self.close()
        return position

    def close(self) -> None:
        """End a started call: the arguments become complete, valid JSON."""
        if not self._sink.is_open:
            return
        if not self._arguments_done:
            self._sink.arguments("{}" if self._scanner is None else self._scanner.closing())
        self._sink.end()

    @property
    def _at_arguments(self) -> bool:
        return self._expect is _Expect.VALUE and (not self._keys.name or self._key in self._keys.arguments)

    def _token(self, char: str, position: int) -> int:
        expect = self._expect
        if expect is _Expect.OPEN and char == "{":
            self._expect = _Expect.KEY
        elif (expect is _Expect.KEY and char == '"') or expect is _Expect.VALUE:
            return self._begin_scan(char, position)
        elif expect is _Expect.COLON and char == ":":
            self._expect = _Expect.VALUE
        elif expect is _Expect.NEXT and char == "," and self._keys.name:
            self._expect, self._first = _Expect.KEY, False
        elif char == "}" and (expect is _Expect.NEXT or (expect is _Expect.KEY and self._first)):
            self._finish()
        else:
            self.failed = True
        return position + (not self.failed)

    def _begin_scan(self, char: str, position: int) -> int:
        if self._expect is _Expect.VALUE and self._cannot_be(char):
            self.failed = True
            return position
        if self._at_arguments:
            # A text may hold the object: `"arguments": "{...}"`.
            if char not in '{"n' or self._arguments_done:
                self.failed = True
                return position
            if char == "{" and self._name is not None:
                self._sink.start(self._name)
        self._scanner = JsonScanner()
        return position

    def _cannot_be(self, char: str) -> bool:
        """Whether a value that begins like this is none of a call's."""
        if self._key in self._keys.name:
            return char != '"'
        if self._keys.beside is None or self._arguments_done:
            return False
        if self._at_arguments:
            return self._name is None
        return self._key not in self._keys.beside or char in "{["

    def _scan(self, scanner: JsonScanner, text: str, position: int) -> int:
        position = scanner.feed(text, position)
        self.failed = scanner.failed
        piece = scanner.take()
        if self._sink.is_open and self._at_arguments:
            self._sink.arguments(piece)
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
            self._keyed(json.loads(text))
            return
        at_arguments = self._at_arguments
        self._expect = _Expect.NEXT
        if at_arguments and not self._sink.is_open:
            self._argued(text)
        elif self._key in self._keys.name:
            self._named(as_text(text))

    def _keyed(self, key: str) -> None:
        self._key, self._expect = key, _Expect.COLON
        if not self._keys.name:
            self._named(as_text(json.dumps(key)))

    def _named(self, name: str | None) -> None:
        if not name or self._name is not None:
            self.failed = True
            return
        self._name = name
        if self._early is not None:
            self._sink.start(name)
            self._sink.arguments(self._early)

    def _argued(self, text: str) -> None:
        """Take arguments that could not be passed on while they arrived: a text, null, or the name is missing."""
        arguments = as_object(text)
        if arguments is None:
            self.failed = True
            return
        self._arguments_done = True
        self._early = arguments
        if self._name is not None:
            self._sink.start(self._name)
            self._sink.arguments(arguments)

    def _finish(self) -> None:
        if self._name is None or (self._keys.beside is not None and not self._arguments_done):
            self.failed = True
            return
        if not self._sink.is_open:
            self._sink.start(self._name)
        self.close()
        self.done = True


def as_text(text: str) -> str | None:
    """Return the text that a JSON string stands for; None for other values and for text that UTF-8 cannot hold."""
    if not text.startswith('"'):
        return None
    value: str = json.loads(text)
    return value if value.isascii() or not _SURROGATE.search(value) else None


def as_object(text: str) -> str | None:
    """Return the JSON object that `text` is, or that the JSON string `text` holds; `{}` for null; else None."""
    if text == "null":
        return "{}"
    if text.startswith("{"):
        return text
    inner = (as_text(text) or "").strip()
    scanner = JsonScanner()
    end = scanner.feed(inner, 0)
    return scanner.take() if inner.startswith("{") and scanner.done and end == len(inner) else None
