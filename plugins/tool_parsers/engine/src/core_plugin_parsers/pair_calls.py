"""Calls written as a name and pairs of elements: `f<arg_key>k</arg_key><arg_value>v</arg_value>`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from core_plugin_parsers.arguments import Arguments
from core_plugin_parsers.reader import CallSink
from core_plugin_parsers.tags import UNDECIDED, Finder, literal_at, skip_space

_MOST_NAME = 512


@dataclass(frozen=True)
class PairCalls:
    """One call a block: its name, then keys and values between tags.

    Attributes:
        closes: The tag that ends the call, and the block.
        key, value: Opening and closing tags.
    """

    closes: str
    key: tuple[str, str] = ("<arg_key>", "</arg_key>")
    value: tuple[str, str] = ("<arg_value>", "</arg_value>")

    def reader(self, sink: CallSink) -> PairCallsReader:
        """Return a reader for one block."""
        return PairCallsReader(self, sink)

    @cached_property
    def name_finder(self) -> Finder:
        """What ends the name."""
        return Finder((self.key[0], self.closes))

    @cached_property
    def key_finder(self) -> Finder:
        """What ends a key."""
        return Finder((self.key[1],))

    @cached_property
    def value_finder(self) -> Finder:
        """What ends a value; a closing tag that is missing is not missed."""
        return Finder((self.value[1], self.key[0], self.closes))


class _At(Enum):
    NAME = auto()
    KEY = auto()
    AFTER_KEY = auto()
    VALUE = auto()
    NEXT = auto()


class PairCallsReader:
    """`Reader` of `PairCalls`."""

    def __init__(self, form: PairCalls, sink: CallSink) -> None:
        self.ended = False
        self.failed = False
        self._form, self._sink = form, sink
        self._at = _At.NAME
        self._text: list[str] = []
        self._length = 0
        self._arguments: Arguments | None = None

    def feed(self, data: str, start: int) -> int:
        """Read on; see `Reader`."""
        position = start
        while position < len(data) and not self.failed and not self.ended:
            before = (position, self._at)
            position = self._read(data, position)
            if (position, self._at) == before:
                break
        return position

    def finish(self) -> None:
        """End the message."""
        if self._at in (_At.VALUE, _At.AFTER_KEY) and self._arguments is not None:
            self._arguments.end()
        self._end_call()

    def _read(self, data: str, position: int) -> int:
        if self._at is _At.NAME:
            return self._until(self._form.name_finder, data, position)
        if self._at is _At.KEY:
            return self._until(self._form.key_finder, data, position)
        if self._at is _At.VALUE:
            return self._value(data, position)
        position = skip_space(data, position)
        if position == len(data):
            return position
        return self._tag(data, position)

    def _until(self, finder: Finder, data: str, position: int) -> int:
        """Read a name or a key."""
        end, literal = finder.find(data, position)
        self._text.append(data[position:end])
        self._length += end - position
        if self._length > _MOST_NAME:
            return self._refuse(end)
        if literal == UNDECIDED:
            return end
        text = "".join(self._text).strip()
        self._text, self._length = [], 0
        if not text or (self._at is _At.NAME and len(text.split()) > 1):
            self._text = [text]
            return self._refuse(end)
        return self._named(text, end) if self._at is _At.NAME else self._keyed(text, end + len(literal))

    def _named(self, name: str, end: int) -> int:
        self._sink.start(name)
        self._arguments = Arguments(self._sink, name)
        self._at = _At.NEXT
        return end

    def _keyed(self, key: str, end: int) -> int:
        if self._arguments is None or not self._arguments.begin(key):
            return self._refuse(end)
        self._at = _At.AFTER_KEY
        return end

    def _tag(self, data: str, position: int) -> int:
        form = self._form
        wanted = (form.value[0],) if self._at is _At.AFTER_KEY else (form.key[0], form.closes)
        literal = literal_at(data, position, wanted)
        if literal == UNDECIDED:
            return position
        if literal is None:
            if self._at is _At.AFTER_KEY and self._arguments is not None:
                self._arguments.end()
            return self._refuse(position)
        if literal == form.closes:
            self._end_call()
            self.ended = True
        else:
            self._at = _At.VALUE if self._at is _At.AFTER_KEY else _At.KEY
        return position + len(literal)

    def _value(self, data: str, position: int) -> int:
        end, literal = self._form.value_finder.find(data, position)
        if self._arguments is not None:
            self._arguments.add(data[position:end])
            if literal != UNDECIDED:
                self._arguments.end()
                self._at = _At.NEXT
        return end + len(literal) if literal == self._form.value[1] else end

    def _refuse(self, position: int) -> int:
        self._end_call()
        self.failed = True
        return position

    def _end_call(self) -> None:
        if self._arguments is not None:
            self._arguments.close()
            self._sink.end()
            self._arguments = None
