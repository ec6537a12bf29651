"""One JSON value, checked while it arrives."""

from __future__ import annotations

import json
import re
from enum import Enum, auto

_MAX_DEPTH = 128
_SPACE = re.compile(r"[ \t\r\n]*")
_RUN = re.compile(r'[^"\\\x00-\x1f]*')
_SCALAR_RUN = re.compile(r"[-+.0-9A-Za-z]*")
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null", re.ASCII)
_HEX = frozenset("0123456789abcdefABCDEF")


class _Expect(Enum):
    VALUE = auto()
    FIRST_ITEM = auto()
    FIRST_KEY = auto()
    KEY = auto()
    COLON = auto()
    NEXT = auto()


class JsonScanner:
    """Reads one JSON value in pieces of any size and passes it on.

    What `take` has returned so far, with `closing()` behind it, is valid JSON at every moment once it is not empty:
    keys, commas, numbers and half escapes are held back until what follows makes them complete. Work is linear.

    Attributes:
        done: The value is complete.
        failed: The text is not JSON; `feed` stopped at the first character that is wrong.
    """

    def __init__(self) -> None:
        self.done = False
        self.failed = False
        self._out: list[str] = []
        self._held: list[str] = []
        self._closers: list[str] = []
        self._expect = _Expect.VALUE
        self._in_string = False
        self._is_key = False
        self._escape = ""
        self._scalar: list[str] = []

    @property
    def began(self) -> bool:
        """Whether anything but white space was read."""
        return self.done or self.failed or bool(self._closers or self._in_string or self._scalar)

    def feed(self, text: str, start: int) -> int:
        """Read `text` from `start`; return where reading stopped: its end, or the end or first error of the value."""
        position = start
        while position < len(text) and not self.done and not self.failed:
            if self._in_string:
                position = self._string(text, position)
            elif self._scalar:
                position = self._more_scalar(text, position)
            else:
                position = self._token(text, position)
        return position

    def take(self) -> str:
        """Return what became complete since the last call."""
        text = "".join(self._out)
        self._out.clear()
        return text

    def closing(self) -> str:
        """Return the shortest text that completes what was taken."""
        quote = '"' if self._in_string and not self._is_key else ""
        return quote + "".join(reversed(self._closers))

    def _token(self, text: str, position: int) -> int:
        end = _SPACE.match(text, position).end()  # type: ignore[union-attr]
        if end > position:
            (self._held if self._held else self._out).append(text[position:end])
            return end
        char = text[position]
        if self._expect in (_Expect.VALUE, _Expect.FIRST_ITEM):
            return self._value(char, position)
        self._punctuation(char)
        return position + (not self.failed)

    def _value(self, char: str, position: int) -> int:
        if char == "]" and self._expect is _Expect.FIRST_ITEM:
            self._close(char)
        elif char in "{[":
            self._open(char)
        elif char == '"':
            self._release(char)
            self._in_string = True
        elif _SCALAR_RUN.fullmatch(char):
            self._scalar.append("")  # marks the state; the characters follow
            return position
        else:
            self.failed = True
        return position + (not self.failed)

    def _punctuation(self, char: str) -> None:
        expect = self._expect
        if char == '"' and expect in (_Expect.KEY, _Expect.FIRST_KEY):
            self._held.append(char)
            self._in_string = self._is_key = True
        elif char == ":" and expect is _Expect.COLON:
            self._held.append(char)
            self._expect = _Expect.VALUE
        elif char == "," and expect is _Expect.NEXT:
            self._held.append(char)
            self._expect = _Expect.KEY if self._closers[-1] == "}" else _Expect.VALUE
        elif expect in (_Expect.NEXT, _Expect.FIRST_KEY) and char == self._closers[-1]:
            self._close(char)
        else:
            self.failed = True

    def _open(self, char: str) -> None:
        if len(self._closers) == _MAX_DEPTH:
            self.failed = True
            return
        self._release(char)
        self._closers.append("}" if char == "{" else "]")
        self._expect = _Expect.FIRST_KEY if char == "{" else _Expect.FIRST_ITEM

    def _close(self, char: str) -> None:
        self._closers.pop()
        self._release(char)
        self._value_ends()

    def _value_ends(self) -> None:
        self._expect = _Expect.NEXT
        self.done = not self._closers

    def _release(self, text: str) -> None:
        """Pass on what was held, and `text`, which makes it complete."""
        self._out += self._held
        self._out.append(text)
        self._held.clear()

    def _string(self, text: str, position: int) -> int:
        sink = self._held if self._is_key else self._out
        if self._escape:
            return self._more_escape(text, position, sink)
        end = _RUN.match(text, position).end()  # type: ignore[union-attr]
        sink.append(text[position:end])
        if end == len(text):
            return end
        if text[end] == '"':
            sink.append('"')
            self._string_ends()
        elif text[end] == "\\":
            self._escape = "\\"
        else:
            sink.append(json.dumps(text[end])[1:-1])  # models write raw line breaks where JSON wants \n
        return end + 1

    def _string_ends(self) -> None:
        self._in_string = False
        if self._is_key:
            self._is_key = False
            self._expect = _Expect.COLON
        else:
            self._value_ends()

    def _more_escape(self, text: str, position: int, sink: list[str]) -> int:
        char = text[position]
        wrong = char not in '"\\/bfnrtu' if self._escape == "\\" else char not in _HEX
        if wrong:
            self.failed = True
            return position
        self._escape += char
        if len(self._escape) == (6 if self._escape[1] == "u" else 2):
            sink.append(self._escape)
            self._escape = ""
        return position + 1

    def _more_scalar(self, text: str, position: int) -> int:
        end = _SCALAR_RUN.match(text, position).end()  # type: ignore[union-attr]
        self._scalar.append(text[position:end])
        if end == len(text):
            return end
        scalar = "".join(self._scalar)
        if _SCALAR.fullmatch(scalar):
            self._scalar.clear()
            self._release(scalar)
            self._value_ends()
        else:
            self.failed = True
        return end
