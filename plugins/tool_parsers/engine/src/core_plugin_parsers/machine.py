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

    A tag begins a block of calls only if a call follows: a reader tries, and if it finds none, the tag is prose and
    parsing goes on right behind it. So a tag that is only mentioned neither hides what follows nor ends the thinking.

    Args:
        begins: What the message begins with.
        shown: Text in front of it.
    """

    def __init__(self, family: Family, ctx: ParserContext, begins: Prose, shown: str = "") -> None:
        self._family = family
        self._prose = begins
        self._trim = self._prose is not Prose.TEXT  # white space is dropped: a block has just begun or ended
        self._cut_short = False  # a call ended the thinking, whose own end may still come
        self._sink = CallSink(ctx)
        self._spoken = False
        self._bare = self._may_be_bare()
        self._data = ""  # what is being parsed: what was held of the last piece, and the next one
        self._rest = ""  # an end of the text that may become a tag
        self._space: list[str] = []  # white space whose fate the next character decides
        self._events: list[ParseEvent] = [Text(shown)] if shown else []
        self._reader: Reader | None = None
        self._tag = ""  # in front of what the reader reads; prose unless a call begins
        self._claimed = False  # a call has begun behind the tag
        # What no call has claimed, behind the tag or the last call: earlier pieces, and where it goes on in `_data`.
        self._tried: list[str] = []
        self._mark = 0

    def feed(self, text: str, token_ids: Sequence[int] = ()) -> list[ParseEvent]:
        """Take in the next piece of the text and return what is certain by now."""
        self._data = self._rest + text
        self._run(0)
        return self._take()

    def finish(self) -> list[ParseEvent]:
        """End the message."""
        while self._reader is not None:
            self._finish_block(self._reader)
        rest, self._rest = self._rest, ""
        self._emit(rest)
        if not self._trim:
            self._put("".join(self._space))
        return self._take()

    def _finish_block(self, reader: Reader) -> None:
        count = self._sink.count
        reader.finish()
        if self._sink.count > count:
            self._claim(0)
        self._events += self._sink.take()
        self._reader = None
        if not self._claimed:
            self._data = self._rest
            self._run(self._resume())
            return
        # Behind a call, what was held is the beginning of a tag that never came.
        self._rest = "" if reader.ended else "".join(self._tried)

    def _run(self, position: int) -> None:
        """Parse what there is from `position` on, and keep what more text has to decide."""
        while True:
            before = (position, *self._progress())
            position = self._step(position)
            if position == len(self._data) or (position, *self._progress()) == before:
                break
        self._rest = self._data[position:]
        if self._reader is not None:
            self._tried.append(self._data[self._mark : position])
            self._mark = max(self._mark - position, 0)

    def _progress(self) -> tuple[object, ...]:
        """Return what a step changes, other than the position."""
        return self._reader, self._prose, self._bare, self._sink.count

    def _take(self) -> list[ParseEvent]:
        events, self._events = self._events, []
        return events

    def _step(self, position: int) -> int:
        if self._reader is not None:
            return self._read(self._reader, position)
        if self._bare:
            return self._begin(position)
        return self._find(position)

    def _begin(self, position: int) -> int:
        """Look at the first character of a message that may be calls as a whole."""
        data, family = self._data, self._family
        start = skip_space(data, position)
        self._space.append(data[position:start])
        tag = literal_at(data, start, family.opening[self._prose])
        if start < len(data) and tag != UNDECIDED:
            self._bare = False
            if tag is None and family.bare is not None and data[start] in family.bare_heads:
                return self._open(family.bare, "", start)
        return start

    def _find(self, position: int) -> int:
        """Pass prose on up to the next tag."""
        family = self._family
        late = self._cut_short and self._prose is Prose.TEXT
        finder = family.late_finder if late else family.finders[self._prose]
        end, tag = finder.find(self._data, position)
        self._emit(self._data[position:end])
        if tag == UNDECIDED:
            return end
        block = family.opening[self._prose].get(tag)
        holds = Prose.TEXT if block is None else block.holds
        if not isinstance(holds, Prose):
            after = self._open(holds, tag, end)
            return end if block is not None and block.tag_is_content else after
        if tag not in family.drops:
            self._turn(holds)
            self._cut_short = False
            self._bare = self._may_be_bare()
        return end + len(tag)

    def _turn(self, prose: Prose) -> None:
        """Go on with prose of a kind; the white space around the turn belongs to nobody."""
        self._space.clear()
        self._prose, self._trim = prose, True

    def _may_be_bare(self) -> bool:
        """Whether what comes next may be calls without a tag: nothing was shown so far."""
        silent = not (self._spoken or self._sink.count)
        return self._family.bare is not None and self._prose is Prose.TEXT and silent

    def _open(self, form: CallForm, tag: str, at: int) -> int:
        """Try to read calls behind the tag that stands at `at`; return where it ends."""
        self._reader = form.reader(self._sink)
        self._tag, self._tried, self._mark = tag, [], at + len(tag)
        self._claimed = False
        return self._mark

    def _read(self, reader: Reader, position: int) -> int:
        count, was_open = self._sink.count, self._sink.is_open
        end = reader.feed(self._data, position)
        if self._sink.count > count or was_open or self._sink.is_open:
            self._claim(end)
        self._events += self._sink.take()
        if reader.ended or reader.failed:
            self._reader = None
        if isinstance(reader, HeaderReader) and reader.ended:
            self._turn(reader.then)
        return self._resume() if reader.failed else end

    def _claim(self, end: int) -> None:
        """Give what was read up to `end` to a call: it is never text again; if the model was thinking, that is over."""
        if not self._claimed:
            self._claimed, self._cut_short = True, self._cut_short or self._prose is Prose.REASONING
            self._turn(Prose.TEXT)
        self._tag, self._tried, self._mark = "", [], end

    def _resume(self) -> int:
        """Take a tag without a call for prose; return where to go on, behind it or behind the last call."""
        self._emit(self._tag)
        before = "".join(self._tried)
        if before:
            self._data, self._mark = before + self._data[self._mark :], 0
        return self._mark

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
