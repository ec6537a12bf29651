"""The machine that parses a message of a family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from core.api import ParserContext, Reasoning, Text
from core.api.parsers import ParseEvent
from core_plugin_parsers.headers import HeaderReader
from core_plugin_parsers.prose import Prose
from core_plugin_parsers.reader import CallForm, CallSink, Reader
from core_plugin_parsers.tags import SPACE, UNDECIDED, literal_at, skip_space

if TYPE_CHECKING:
    from core_plugin_parsers.family import Family


class Machine:
    """Parses one message. Work is linear in its length, whatever it holds.

    Args:
        begins: What the message begins with.
        shown: Text in front of it.
    """

    def __init__(self, family: Family, ctx: ParserContext, begins: Prose, shown: str = "") -> None:
        self._family = family
        self._prose = begins
        self._trim = self._prose is not Prose.TEXT  # white space is dropped: a block has just begun or ended
        self._sink = CallSink(ctx)
        self._reader: Reader | None = None
        self._spoken = False
        self._bare = self._may_be_bare()
        self._rest = ""  # an end of the text that may become a tag
        self._raw: list[str] = []  # what was read of a block since its beginning or its last call
        self._space: list[str] = []  # white space whose fate the next character decides
        self._events: list[ParseEvent] = [Text(shown)] if shown else []

    def feed(self, text: str, token_ids: Sequence[int] = ()) -> list[ParseEvent]:
        """Take in the next piece of the text and return what is certain by now."""
        data, position = self._rest + text, 0
        while True:
            before = (position, *self._progress())
            position = self._step(data, position)
            if position == len(data) or (position, *self._progress()) == before:
                break
        self._rest = data[position:]
        return self._take()

    def finish(self) -> list[ParseEvent]:
        """End the message."""
        rest, self._rest = self._rest, ""
        if self._reader is not None:
            # Behind a call, what was held is the beginning of a tag that never came.
            if not (self._sink.count or self._sink.is_open):
                self._raw.append(rest)
            self._reader.finish()
            self._leave(self._reader)
        else:
            self._emit(rest)
        if not self._trim:
            self._put("".join(self._space))
        return self._take()

    def _progress(self) -> tuple[object, ...]:
        """Return what a step changes, other than the position."""
        return self._reader, self._prose, self._bare, self._sink.count

    def _take(self) -> list[ParseEvent]:
        events, self._events = self._events, []
        return events

    def _step(self, data: str, position: int) -> int:
        if self._reader is not None:
            return self._read(self._reader, data, position)
        if self._bare:
            return self._begin(data, position)
        return self._find(data, position)

    def _begin(self, data: str, position: int) -> int:
        """Look at the first character of a message that may be calls as a whole."""
        start = skip_space(data, position)
        self._space.append(data[position:start])
        tag = literal_at(data, start, self._family.opening[self._prose])
        if start < len(data) and tag != UNDECIDED:
            self._bare = False
            if tag is None and self._family.bare is not None and data[start] in self._family.bare_heads:
                self._open(self._family.bare, "")
        return start

    def _find(self, data: str, position: int) -> int:
        """Pass prose on up to the next tag."""
        end, tag = self._family.finders[self._prose].find(data, position)
        self._emit(data[position:end])
        if tag == UNDECIDED:
            return end
        block = self._family.opening[self._prose].get(tag)
        holds = Prose.TEXT if block is None else block.holds
        if not isinstance(holds, Prose):
            self._open(holds, tag)
        elif tag not in self._family.drops:
            self._space.clear()
            self._prose, self._trim = holds, True
            self._bare = self._may_be_bare()
        return end + len(tag)

    def _may_be_bare(self) -> bool:
        """Whether what comes next may be calls without a tag: nothing was shown so far."""
        silent = not (self._spoken or self._sink.count)
        return self._family.bare is not None and self._prose is Prose.TEXT and silent

    def _open(self, form: CallForm, tag: str) -> None:
        self._reader = form.reader(self._sink)
        self._raw = [*self._space, tag]
        self._space = []

    def _read(self, reader: Reader, data: str, position: int) -> int:
        count, was_open = self._sink.count, self._sink.is_open
        end = reader.feed(data, position)
        if self._sink.count > count or was_open or self._sink.is_open:
            self._raw.clear()  # a call that was started is never text again
        else:
            self._raw.append(data[position:end])
        self._events += self._sink.take()
        if reader.ended or reader.failed:
            self._leave(reader)
        return end

    def _leave(self, reader: Reader) -> None:
        """Go on with prose behind a block; what was no call is text."""
        self._events += self._sink.take()
        self._reader = None
        self._prose = reader.then if isinstance(reader, HeaderReader) else Prose.TEXT
        raw = "".join(self._raw)
        self._raw.clear()
        if self._sink.count or (isinstance(reader, HeaderReader) and reader.ended):
            self._trim = True
        if not reader.ended:
            self._emit(raw)

    def _emit(self, text: str) -> None:
        """Pass on prose, but hold white space at its end, and drop it at the edge of a block."""
        body = text.rstrip(SPACE)
        if body:
            if self._trim:
                self._space.clear()
                text, body = text.lstrip(SPACE), body.lstrip(SPACE)
                self._trim = False
            self._put("".join(self._space) + body)
            self._space = []
        if len(text) > len(body):
            self._space.append(text[len(body) :])

    def _put(self, text: str) -> None:
        if text and self._prose is not Prose.DROPPED:
            is_text = self._prose is Prose.TEXT
            self._spoken |= is_text
            self._events.append(Text(text) if is_text else Reasoning(text))
