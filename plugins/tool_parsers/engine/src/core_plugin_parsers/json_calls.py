"""Calls as JSON objects, one or several, bare or in an array."""

from __future__ import annotations

from dataclasses import dataclass, field

from core_plugin_parsers.json_object import ObjectCall, ObjectKeys
from core_plugin_parsers.reader import CallSink
from core_plugin_parsers.tags import UNDECIDED, literal_at, skip_space


@dataclass(frozen=True)
class JsonCalls:
    """`{"name": ..., "arguments": {...}}`, or `[{...}, {...}]`.

    Attributes:
        closes: Tags that end the block. Without one it ends with the first text that is no call.
        several: Objects may follow each other without an array.
        separators: What may stand between them.
        before: Literals that may stand in front of the first object, such as a fence.
        keys: Which members say what.
    """

    closes: tuple[str, ...] = ()
    several: bool = False
    separators: str = ""
    before: tuple[str, ...] = ()
    keys: ObjectKeys = field(default_factory=ObjectKeys)

    def reader(self, sink: CallSink) -> JsonCallsReader:
        """Return a reader for one block."""
        return JsonCallsReader(self, sink)


class JsonCallsReader:
    """`Reader` of `JsonCalls`. A closing tag that is missing is not missed."""

    def __init__(self, form: JsonCalls, sink: CallSink) -> None:
        self.ended = False
        self.failed = False
        self._form, self._sink = form, sink
        self._call: ObjectCall | None = None
        self._array = False
        self._before = True  # nothing but what may stand in front was seen
        self._calls = 0

    def feed(self, data: str, start: int) -> int:
        """Read on; see `Reader`."""
        position = start
        while position < len(data) and not self.failed and not self.ended:
            if self._call is not None:
                return self._object(self._call, data, position)
            before = position
            position = self._between(data, position)
            if position == before and self._call is None:
                break
        return position

    def finish(self) -> None:
        """End the message."""
        if self._call is not None:
            self._call.close()

    def _object(self, call: ObjectCall, data: str, position: int) -> int:
        position = call.feed(data, position)
        if call.done:
            self._call = None
            self._calls += 1
        self.failed = call.failed
        return position

    def _between(self, data: str, start: int) -> int:
        form = self._form
        position = skip_space(data, start)
        if position == len(data):
            return position
        for literals, handle in ((form.closes, self._close), (form.before if self._before else (), None)):
            literal = literal_at(data, position, literals)
            if literal == UNDECIDED:
                return position
            if literal is not None:
                if handle is not None:
                    handle()
                return position + len(literal)
        return self._token(data[position], position)

    def _close(self) -> None:
        self.ended = not self._before  # an empty list is a block without calls, tags with nothing between are text
        self.failed = self._before

    def _token(self, char: str, position: int) -> int:
        first = self._calls == 0 and not self._array
        if char == "{" and (first or self._array or self._form.several):
            self._call, self._before = ObjectCall(self._form.keys, self._sink), False
            return position
        if char == "[" and first:
            self._array, self._before = True, False
        elif self._array and char in ",]":
            self._array = char == ","
            self._ends_with_array(char)
        elif not (char in self._form.separators and self._calls):
            self._stop()
            return position
        return position + 1

    def _ends_with_array(self, char: str) -> None:
        if char == "]" and not self._form.closes:
            self.ended = self._calls > 0
            self.failed = not self.ended

    def _stop(self) -> None:
        """Leave the text that stands here to whoever comes next: no call, or a closing tag that is missing."""
        self.ended = self._calls > 0
        self.failed = not self.ended
