"""Calls written with elements that are named by the argument: `<invoke name="f"><city>Paris</city></invoke>`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from typing import Any

from core_plugin_parsers.reader import CallSink
from core_plugin_parsers.stepping import SteppingReader
from core_plugin_parsers.tags import TOOL_NAME, UNDECIDED, Finder, skip_space
from core_plugin_parsers.typed import properties_of, to_json, types_of

_MOST_TAG = 512
_MOST_DEPTH = 64
_CALL = re.compile(rf"invoke\s+name\s*=\s*[\"']?({TOOL_NAME.pattern})[\"']?\s*")
_NAME = re.compile(r"[^\s<>/]+")


@dataclass(frozen=True)
class NestedCalls:
    """Elements in elements: an object has an element for each member, an array one for each of its `items`.

    Attributes:
        mark: What stands in front of every tag, so that nothing else is one.
        closes: Name of the element that the block is.
        items: Name of the elements of an array.
    """

    mark: str
    closes: str
    items: str = "item"

    def reader(self, sink: CallSink) -> NestedCallsReader:
        """Return a reader for one block."""
        return NestedCallsReader(self, sink)

    @cached_property
    def mark_finder(self) -> Finder:
        """Finder of the literal that begins a tag."""
        return Finder((self.mark,))


@dataclass
class _Element:
    """An element that is open.

    Attributes:
        members: Name and JSON of each element in it.
    """

    name: str
    schema: Mapping[str, Any]
    text: list[str] = field(default_factory=list)
    members: list[tuple[str, str]] = field(default_factory=list)

    def inner(self, name: str) -> Mapping[str, Any]:
        """Return the schema of an element in this one."""
        found = properties_of(self.schema).get(name, self.schema.get("items"))
        return found if isinstance(found, Mapping) else {}

    def json(self, items: str) -> str:
        """Return the value that the element writes."""
        if not self.members:
            return to_json("".join(self.text), types_of(self.schema))
        if all(name == items for name, _ in self.members):
            return f"[{', '.join(value for _, value in self.members)}]"
        return f"{{{', '.join(_member(*one) for one in dict(self.members).items())}}}"


class _At(Enum):
    TEXT = auto()
    TAG = auto()


class NestedCallsReader(SteppingReader):
    """`Reader` of `NestedCalls`. An argument is passed on when its element ends."""

    def __init__(self, form: NestedCalls, sink: CallSink) -> None:
        super().__init__(sink, _At.TEXT)
        self._form = form
        self._tag: list[str] = []
        self._tag_length = 0
        self._open: list[_Element] = []  # the call, and the elements in it that are open
        self._written: set[str] = set()

    def finish(self) -> None:
        """End the message."""
        while len(self._open) > 1:
            self._close()
        self._end_call()

    def _read(self, data: str, position: int) -> int:
        if self._at is _At.TAG:
            return self._read_tag(data, position)
        if len(self._open) < 2:
            position = skip_space(data, position)
        end, literal = self._form.mark_finder.find(data, position)
        if end > position and not self._take(data[position:end]):
            return self._refuse(position)
        if literal != UNDECIDED:
            self._at, self._tag, self._tag_length = _At.TAG, [], 0
        return end + len(literal)

    def _take(self, text: str) -> bool:
        """Add text to the innermost element; between elements there is none."""
        if len(self._open) > 1:
            self._open[-1].text.append(text)
        return len(self._open) > 1

    def _read_tag(self, data: str, position: int) -> int:
        room = _MOST_TAG - self._tag_length
        end = data.find(">", position, position + room + 1)
        stop = len(data) if end < 0 else end
        if stop - position > room:
            return self._refuse(position + room)
        self._tag.append(data[position:stop])
        self._tag_length += stop - position
        if end < 0:
            return stop
        self._at = _At.TEXT
        tag = "".join(self._tag)
        known = tag.startswith("<") and (self._closing(tag[2:].strip()) if tag[1:2] == "/" else self._opening(tag[1:]))
        return end + 1 if known else self._refuse(end)

    def _opening(self, tag: str) -> bool:
        found = _CALL.fullmatch(tag) if len(self._open) < 2 else None
        if found is not None:
            self._end_call()  # the closing tag of the one before may be missing
            self._sink.start(found[1])
            self._open, self._written = [_Element("invoke", self._sink.tools.get(found[1]) or {})], set()
            return True
        if not self._open or len(self._open) > _MOST_DEPTH or not _NAME.fullmatch(tag):
            return False
        self._open.append(_Element(tag, self._open[-1].inner(tag)))
        return True

    def _closing(self, name: str) -> bool:
        if not any(one.name == name for one in self._open):
            self.finish()
            self.ended = name == self._form.closes and self._calls > 0
            return self.ended
        while len(self._open) > 1 and self._open[-1].name != name:
            self._close()  # a closing tag that is missing is not missed
        if len(self._open) > 1:
            self._close()
        else:
            self._end_call()
        return True

    def _close(self) -> None:
        element = self._open.pop()
        value = element.json(self._form.items)
        if len(self._open) > 1:
            self._open[-1].members.append((element.name, value))
        elif element.name not in self._written:
            self._sink.arguments(("{" if not self._written else ", ") + _member(element.name, value))
            self._written.add(element.name)

    def _end_call(self) -> None:
        if self._open:
            self._sink.arguments("}" if self._written else "{}")
            self._sink.end()
            self._open = []

    def _refuse(self, position: int) -> int:
        self.finish()
        self.failed = True
        return position


def _member(name: str, value: str) -> str:
    return f"{json.dumps(name, ensure_ascii=False)}: {value}"
