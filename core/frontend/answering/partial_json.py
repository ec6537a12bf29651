"""A JSON object that arrives in pieces, passed on as far as it could be completed."""

from __future__ import annotations

import re

_RUN = re.compile(r'[^"\\]*')
_SCALAR = re.compile(r"[-+.\w]*")
_SPACE = re.compile(r"[ \t\r\n]*")
_LOW = "[dD][c-fC-F].."
# A half of a surrogate pair says nothing without the other one; the first waits for what follows it.
_ESCAPE = re.compile(
    rf"""\\(?:[^u]|u(?![dD][89a-fA-F])....|u[dD][89abAB]..\\u{_LOW}
    |(?P<half>u{_LOW}|u[dD][89abAB]..(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F])))""",
    re.DOTALL | re.VERBOSE,
)


class PartialObject:
    """Reads one object. Work is linear.

    What is passed on can always be completed by `closing`: keys, numbers and words wait until they are whole. The text
    is taken for valid JSON, as a grammar has enforced it.

    Attributes:
        done: The object is complete.
    """

    def __init__(self) -> None:
        self.done = False
        self._closers: list[str] = []
        self._string = ""  # what the open string is: a key or a value
        self._scalar = False
        self._key_next = False
        self._escape = ""  # the beginning of an escape
        self._held: list[str] = []
        self._out: list[str] = []

    def feed(self, text: str) -> tuple[str, str]:
        """Return what can be passed on by now, and the text behind the object's end."""
        data, position = self._escape + text, 0
        self._escape = ""
        while position < len(data) and not self.done:
            if self._string:
                position = self._in_string(data, position)
            elif self._scalar:
                position = self._in_scalar(data, position)
            else:
                position = self._token(data, position)
        found, self._out = "".join(self._out), []
        return found, data[position:]

    def closing(self) -> str:
        """Return the shortest text that completes what was passed on."""
        if not (self._closers or self.done):
            return "{}"
        return ('"' if self._string == "value" else "") + "".join(reversed(self._closers))

    def _in_string(self, data: str, position: int) -> int:
        sink = self._held if self._string == "key" else self._out
        end = _RUN.match(data, position).end()  # type: ignore[union-attr]
        sink.append(data[position:end])
        if end == len(data):
            return end
        if data[end] == '"':
            sink.append('"')
            self._string = ""
            return end + 1
        escape = _ESCAPE.match(data, end)
        if escape is None:
            self._escape = data[end:]
            return len(data)
        sink.append("\\ufffd" if escape["half"] else escape[0])
        return escape.end()

    def _in_scalar(self, data: str, position: int) -> int:
        end = _SCALAR.match(data, position).end()  # type: ignore[union-attr]
        self._held.append(data[position:end])
        if end < len(data):
            self._scalar = False
            self._release("")
        return end

    def _token(self, data: str, position: int) -> int:
        end = _SPACE.match(data, position).end()  # type: ignore[union-attr]
        if end > position:
            (self._held if self._held else self._out).append(data[position:end])
            return end
        char = data[position]
        if char in "{[":
            self._release(char)
            self._closers.append("}" if char == "{" else "]")
            self._key_next = char == "{"
        elif char in "}]":
            self._release(char)
            self._closers.pop()
            self.done = not self._closers
        elif char == '"':
            self._open_string()
        elif char in ",:":
            self._held.append(char)
            self._key_next = char == "," and self._closers[-1] == "}"
        else:
            self._scalar = True
            return position
        return position + 1

    def _open_string(self) -> None:
        self._string = "key" if self._key_next else "value"
        if self._key_next:
            self._held.append('"')
        else:
            self._release('"')

    def _release(self, text: str) -> None:
        """Pass on what was held, and `text`, which makes it complete."""
        self._out += self._held
        self._out.append(text)
        self._held.clear()
