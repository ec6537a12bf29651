"""Calls written as a name and pairs of elements: `f<arg_key>k</arg_key><arg_value>v</arg_value>`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from core_plugin_parsers.arguments import Arguments
from core_plugin_parsers.reader import CallSink
from core_plugin_parsers.stepping import SteppingReader
from core_plugin_parsers.tags import TOOL_NAME, UNDECIDED, Finder, literal_at, skip_space

_MOST_NAME = 512


@dataclass(frozen=True)
class PairCalls:
    """One call a block: its name, then keys and values between tags.

    Attributes:
        closes: The tag that ends the call, and the block.
        key, value: Opening and closing tags.
        kind: Tags around a value's type, which may stand between its key and the value.
        separator: What may stand behind the name.
    """

    closes: str
    key: tuple[str, str] = ("<arg_key>", "</arg_key>")
    value: tuple[str, str] = ("<arg_value>", "</arg_value>")
    kind: tuple[str, str] | None = None
    separator: tuple[str, ...] = ()

    def reader(self, sink: CallSink) -> PairCallsReader:
        """Return a reader for one block."""
        return PairCallsReader(self, sink)

    @cached_property
    def name_finder(self) -> Finder:
        """Finder of the literals that end the name."""
        return Finder((*self.separator, self.key[0], self.closes))

    @cached_property
    def key_finder(self) -> Finder:
        """Finder of the literal that ends a key."""
        return Finder((self.key[1],))

    @cached_property
    def kind_finder(self) -> Finder:
        """Finder of the literal that ends a type."""
        return Finder(self.kind[1:] if self.kind else ())

    @cached_property
    def value_finder(self) -> Finder:
        """Finder of the literals that end a value; a closing tag that is missing is not missed."""
        return Finder((self.value[1], self.key[0], self.closes))


class _At(Enum):
    NAME = auto()
    KEY = auto()
    AFTER_KEY = auto()
    KIND = auto()
    AFTER_KIND = auto()
    VALUE = auto()
    NEXT = auto()


class PairCallsReader(SteppingReader):
    """`Reader` of `PairCalls`."""

    def __init__(self, form: PairCalls, sink: CallSink) -> None:
        super().__init__(sink, _At.NAME)
        self._form = form
        self._text = ""
        self._key = ""
        self._is_string: bool | None = None
        self._arguments: Arguments | None = None

    def finish(self) -> None:
        """End the message."""
        if self._at is _At.VALUE and self._arguments is not None:
            self._arguments.end()
        self._end_call()

    def _read(self, data: str, position: int) -> int:
        finders = {_At.NAME: self._form.name_finder, _At.KEY: self._form.key_finder, _At.KIND: self._form.kind_finder}
        if self._at in finders:
            return self._until(finders[self._at], data, position)
        if self._at is _At.VALUE:
            return self._value(data, position)
        position = skip_space(data, position)
        if position == len(data):
            return position
        return self._tag(data, position)

    def _until(self, finder: Finder, data: str, position: int) -> int:
        """Read a name, a key or a type."""
        room = _MOST_NAME - len(self._text)
        end, literal = finder.find(data, position, room)
        if end - position > room:
            return self._refuse(position + room)
        self._text += data[position:end]
        text = self._text.strip()
        if text and self._at is _At.NAME and not TOOL_NAME.fullmatch(text):
            return self._refuse(end)
        if literal == UNDECIDED:
            return end
        self._text = ""
        if not text:
            return self._refuse(end)
        after = end + len(literal)
        if self._at is _At.NAME:
            return self._named(text, after if literal in self._form.separator else end)
        if self._at is _At.KEY:
            self._key, self._is_string, self._at = text, None, _At.AFTER_KEY
        else:
            self._is_string, self._at = text.lower() == "string", _At.AFTER_KIND
        return after

    def _named(self, name: str, end: int) -> int:
        self._sink.start(name)
        self._arguments = Arguments(self._sink, name)
        self._at = _At.NEXT
        return end

    def _tag(self, data: str, position: int) -> int:
        form = self._form
        kind = form.kind[:1] if form.kind and self._at is _At.AFTER_KEY else ()
        wanted = (form.key[0], form.closes) if self._at is _At.NEXT else (form.value[0], *kind)
        literal = literal_at(data, position, wanted)
        if literal == UNDECIDED:
            return position
        if literal is None or (literal == form.value[0] and not self._begin()):
            return self._refuse(position)
        if literal == form.closes:
            self._end_call()
            self.ended = True
        elif literal != form.value[0]:
            self._at = _At.KEY if literal == form.key[0] else _At.KIND
        return position + len(literal)

    def _begin(self) -> bool:
        """Begin the value of the key that was read; a key that comes again is refused."""
        self._at = _At.VALUE
        return self._arguments is not None and self._arguments.begin(self._key, is_string=self._is_string)

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
