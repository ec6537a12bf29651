"""Calls written with elements: `<function=f><parameter=k>v</parameter></function>` and its relatives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from core_plugin_parsers.arguments import Arguments
from core_plugin_parsers.reader import CallSink
from core_plugin_parsers.stepping import SteppingReader
from core_plugin_parsers.tags import TOOL_NAME, UNDECIDED, Finder, literal_at, skip_space

_MOST_HEAD = 1024
"""Characters of an opening tag; what runs on is none."""

_ATTRIBUTE = re.compile(r"(?<![\w.:-])([\w.:-]++)\s*+=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")


@dataclass(frozen=True)
class Element:
    """A pair of tags around something with a name.

    Attributes:
        opens: How the opening tag begins: `<function=` or `<invoke`.
        closes: The closing tag.
        attributes: Attributes that may hold the name; without any, the name follows `opens` as it is.
        ends: What ends the opening tag.
    """

    opens: str
    closes: str
    attributes: tuple[str, ...] = ()
    ends: str = ">"

    @cached_property
    def end_finder(self) -> Finder:
        """Finder of the literal that ends the opening tag."""
        return Finder((self.ends,))


@dataclass(frozen=True)
class XmlCalls:
    """Elements for calls with elements for their parameters.

    Attributes:
        call, parameter: The elements.
        closes: Tags that end the block. Without one it ends behind a call.
        trim: The format writes a line break on both sides of each value.
        string_attribute: An attribute of the parameter that says `true` or `string` for a text, another word for JSON.
        around: What may stand in front of each call, and behind it, and means nothing.
        verbatim: What may stand around a whole value, in which tags are text; white space outside is the format's.
    """

    call: Element
    parameter: Element
    closes: tuple[str, ...] = ()
    trim: bool = False
    string_attribute: str | None = None
    around: tuple[str, ...] = ()
    verbatim: tuple[str, str] | None = None

    def reader(self, sink: CallSink) -> XmlCallsReader:
        """Return a reader for one block."""
        return XmlCallsReader(self, sink)

    @cached_property
    def value_finder(self) -> Finder:
        """Finder of the literals that end a value; a closing tag that is missing is not missed."""
        around = self.verbatim[:1] if self.verbatim else ()
        return Finder((self.parameter.closes, self.parameter.opens, self.call.closes, *self.closes, *around))

    @cached_property
    def verbatim_finder(self) -> Finder:
        """Finder of the literal that ends a verbatim stretch."""
        return Finder(self.verbatim[1:] if self.verbatim else ())

    @cached_property
    def inner(self) -> tuple[str, ...]:
        """Literals that may stand in a call, between parameters."""
        return (self.parameter.opens, self.call.closes, *self.closes, self.call.opens)

    @cached_property
    def outer(self) -> tuple[str, ...]:
        """Literals that may stand between calls."""
        return (self.call.opens, *self.closes, *self.around)


class _At(Enum):
    BETWEEN = auto()
    CALL_HEAD = auto()
    IN_CALL = auto()
    PARAMETER_HEAD = auto()
    VALUE = auto()
    VERBATIM = auto()


class XmlCallsReader(SteppingReader):
    """`Reader` of `XmlCalls`."""

    def __init__(self, form: XmlCalls, sink: CallSink) -> None:
        super().__init__(sink, _At.BETWEEN)
        self._form = form
        self._name = ""  # of a call that begins if one of its inner tags follows
        self._space: list[str] = []  # white space of a value, at its end unless more follows
        self._blank = True  # there is nothing else in the value yet
        self._was_verbatim = False  # there was a verbatim stretch in the value
        self._head: list[str] = []
        self._head_length = 0
        self._arguments: Arguments | None = None

    def finish(self) -> None:
        """End the message."""
        self._begin_call()
        if self._at in (_At.VALUE, _At.VERBATIM):
            self._end_value()
        self._end_call()

    def _read(self, data: str, position: int) -> int:
        if self._at in (_At.CALL_HEAD, _At.PARAMETER_HEAD):
            return self._read_head(data, position)
        if self._at is _At.VALUE:
            return self._value(data, position)
        if self._at is _At.VERBATIM:
            return self._verbatim(data, position)
        position = skip_space(data, position)
        if position == len(data):
            return position
        return self._between(data, position) if self._at is _At.BETWEEN else self._in_call(data, position)

    def _between(self, data: str, position: int) -> int:
        literal = literal_at(data, position, self._form.outer)
        if literal == self._form.call.opens:
            self._begin_head(_At.CALL_HEAD)
        elif literal is None or literal in self._form.closes:
            self._stop()
        return position + len(literal or "")

    def _in_call(self, data: str, position: int) -> int:
        form = self._form
        literal = literal_at(data, position, form.inner)
        if literal == UNDECIDED:
            return position
        if literal is None and self._name:
            return self._refuse(position)  # a tag that is only mentioned
        self._begin_call()
        if literal == form.parameter.opens:
            self._begin_head(_At.PARAMETER_HEAD)
            return position + len(literal)
        self._end_call()
        if literal is None:
            self.failed = True
        elif literal == form.call.closes:
            self.ended = not form.closes
            return position + len(literal)
        return position  # the block's end, or the next call: this one's closing tag is missing

    def _begin_head(self, at: _At) -> None:
        self._at, self._head, self._head_length = at, [], 0

    def _read_head(self, data: str, position: int) -> int:
        element = self._form.call if self._at is _At.CALL_HEAD else self._form.parameter
        room = _MOST_HEAD - self._head_length
        end, literal = element.end_finder.find(data, position, room)
        if end - position > room:
            return self._refuse(position + room)
        self._head.append(data[position:end])
        self._head_length += end - position
        return end if literal == UNDECIDED else self._known("".join(self._head), element, end)

    def _known(self, head: str, element: Element, end: int) -> int:
        attributes = {key: a or b or c for key, a, b, c in _ATTRIBUTE.findall(head)}
        named = [attributes[key] for key in element.attributes if key in attributes]
        name = next(iter(named), "") if element.attributes else head.strip().strip("\"'")
        if not name or (element is self._form.call and not TOOL_NAME.fullmatch(name)):
            return self._refuse(end)
        after = end + len(element.ends)
        if element is self._form.call:
            self._name, self._at = name, _At.IN_CALL
            return after
        said = attributes.get(self._form.string_attribute or "")
        is_string = None if said is None else said.lower() in ("true", "string")
        if self._arguments is None or not self._arguments.begin(name, is_string=is_string):
            return self._refuse(end)
        self._at = _At.VALUE
        return after

    def _value(self, data: str, position: int) -> int:
        end, literal = self._form.value_finder.find(data, position)
        if not self._form.verbatim:
            self._add(data[position:end])
        else:
            self._add_outside(data[position:end])
            if literal == self._form.verbatim[0]:
                self._begin_verbatim()
                return end + len(literal)
        if literal != UNDECIDED:
            self._end_value()
            self._at = _At.IN_CALL
        return end + len(literal) if literal == self._form.parameter.closes else end

    def _verbatim(self, data: str, position: int) -> int:
        end, literal = self._form.verbatim_finder.find(data, position)
        self._add(data[position:end])
        if literal != UNDECIDED:
            self._at = _At.VALUE
        return end + len(literal)

    def _add_outside(self, text: str) -> None:
        """Add to a value of which a verbatim stretch may be all but the white space at both ends."""
        body = text.rstrip()
        if body:
            self._add("".join(self._space) + body)
            self._space, self._blank = [], False
        self._space.append(text[len(body) :])

    def _begin_verbatim(self) -> None:
        if not self._blank:
            self._add("".join(self._space))
        self._at, self._space, self._blank, self._was_verbatim = _At.VERBATIM, [], False, True

    def _end_value(self) -> None:
        if not self._was_verbatim:
            self._add("".join(self._space))
        self._space, self._blank, self._was_verbatim = [], True, False
        if self._arguments is not None:
            self._arguments.end()

    def _add(self, text: str) -> None:
        if self._arguments is not None:
            self._arguments.add(text)

    def _begin_call(self) -> None:
        if self._name:
            self._sink.start(self._name)
            self._arguments = Arguments(self._sink, self._name, trim=self._form.trim)
            self._name = ""

    def _refuse(self, position: int) -> int:
        self._end_call()
        self.failed = True
        return position

    def _end_call(self) -> None:
        if self._arguments is not None:
            self._arguments.close()
            self._sink.end()
            self._arguments = None
        self._at = _At.BETWEEN
