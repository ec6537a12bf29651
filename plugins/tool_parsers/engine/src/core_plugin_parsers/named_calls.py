"""Calls whose name stands in front of their JSON arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from core_plugin_parsers.json_value import JsonScanner
from core_plugin_parsers.reader import CallSink
from core_plugin_parsers.stepping import SteppingReader
from core_plugin_parsers.tags import UNDECIDED, Finder, literal_at, skip_space

_MOST_NAME = 512
"""Characters of a name; what runs on without an end is no call."""


@dataclass(frozen=True)
class NamedCalls:
    """`NAME{...}`, with tags around.

    Attributes:
        opens: Tags in front of each call. Without one, a name begins where a call may.
        name_ends: Literals between the name and the arguments. Without one, the arguments' brace ends the name.
        name: Regular expression that the text of the name matches; its group `name` is the tool's name.
        after: Literals that may stand behind the arguments, such as the end of a fence.
        call_closes: Tags that end a call.
        closes: Tags that end the block. Without one it ends with the first text that is no call.
        single: There is one call in a block.
    """

    opens: tuple[str, ...] = ()
    name_ends: tuple[str, ...] = ()
    name: str = r"\s*(?P<name>[^\s<{\[]+)\s*"
    after: tuple[str, ...] = ()
    call_closes: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    single: bool = False

    def reader(self, sink: CallSink) -> NamedCallsReader:
        """Return a reader for one block."""
        return NamedCallsReader(self, sink)

    @cached_property
    def name_finder(self) -> Finder:
        """Finder of the literals that end a name."""
        return Finder(self.name_ends or ("{",))

    @cached_property
    def name_pattern(self) -> re.Pattern[str]:
        """`name`, compiled."""
        return re.compile(self.name)


class _At(Enum):
    BETWEEN = auto()
    NAME = auto()
    ARGUMENTS = auto()
    AFTER = auto()


class NamedCallsReader(SteppingReader):
    """`Reader` of `NamedCalls`. Closing tags that are missing are not missed."""

    def __init__(self, form: NamedCalls, sink: CallSink) -> None:
        super().__init__(sink, _At.BETWEEN)
        self._form = form
        self._name: list[str] = []
        self._name_length = 0
        self._scanner = JsonScanner()

    def finish(self) -> None:
        """End the message."""
        if self._sink.is_open:
            self._sink.arguments("" if self._scanner.done else self._scanner.closing() or "{}")
            self._sink.end()

    def _read(self, data: str, position: int) -> int:
        if self._at is _At.ARGUMENTS:
            return self._arguments(data, position)
        if self._at is _At.NAME:
            return self._until_name_ends(data, position)
        position = skip_space(data, position)
        if position == len(data):
            return position
        return self._after(data, position) if self._at is _At.AFTER else self._between(data, position)

    def _between(self, data: str, position: int) -> int:
        form = self._form
        literal = literal_at(data, position, (*form.closes, *form.opens))
        if literal == UNDECIDED:
            return position
        if literal in form.closes:
            self._stop()
        elif literal is not None or (not form.opens and not (self._calls and form.single)):
            self._at = _At.NAME
        else:
            self._stop()
        return position + len(literal or "")

    def _until_name_ends(self, data: str, position: int) -> int:
        room = _MOST_NAME - self._name_length
        end, literal = self._form.name_finder.find(data, position, room)
        self._name.append(data[position:end])
        self._name_length += end - position
        self.failed = end - position > room
        if literal == UNDECIDED or self.failed:
            return end
        found = self._form.name_pattern.fullmatch("".join(self._name))
        if found is None:
            self.failed = True
            return end
        self._sink.start(found["name"])
        self._name, self._name_length = [], 0
        self._at, self._scanner = _At.ARGUMENTS, JsonScanner()
        return end + len(literal) if self._form.name_ends else end

    def _arguments(self, data: str, position: int) -> int:
        scanner = self._scanner
        if not scanner.began:
            position = skip_space(data, position)
            if position == len(data):
                return position
            if data[position] != "{":
                return self._broken(position)
        position = scanner.feed(data, position)
        self._sink.arguments(scanner.take())
        if scanner.done:
            self._at = _At.AFTER
            self._sink.end()
        elif scanner.failed:
            return self._broken(position)
        return position

    def _broken(self, position: int) -> int:
        """End a call whose arguments are not, or not any more, JSON; the rest is text."""
        self.finish()
        self.failed = True
        return position

    def _after(self, data: str, position: int) -> int:
        form = self._form
        literal = literal_at(data, position, (*form.after, *form.call_closes))
        if literal == UNDECIDED:
            return position
        if literal is None or literal in form.call_closes:
            self._at = _At.BETWEEN
            self.ended = form.single and not form.closes
        return position + len(literal or "")
