"""Hermes-style output: visible text, `<think>` reasoning and `<tool_call>` calls, as one state machine."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING

from core.api import ParserContext, Reasoning, Text
from core.api.parsers import ParseEvent
from core_plugin_hermes.call import Call

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPACE = " \t\r\n"
_THINK, _THINK_END = "<think>", "</think>"
_CALL, _CALL_END = "<tool_call>", "</tool_call>"


class _State(Enum):
    TEXT = auto()
    REASONING = auto()
    CALL = auto()
    AFTER_CALL = auto()


_TAGS = {_State.TEXT: (_THINK, _CALL), _State.REASONING: (_THINK_END,)}
_TAG = {state: re.compile("|".join(map(re.escape, tags))) for state, tags in _TAGS.items()}
_SPACES = re.compile(f"[{_SPACE}]*")


class HermesParser:
    """Parses one message.

    White space around a call or a block of reasoning belongs to neither. Calls inside reasoning are reasoning. What
    looks like a call but is not becomes text again; a call that breaks off after its arguments began is closed to
    valid JSON, and the rest of it is text.
    """

    def __init__(self, ctx: ParserContext) -> None:
        self._state = _State.REASONING if ctx.in_reasoning else _State.TEXT
        self._at_block_start = ctx.in_reasoning
        self._rest = ""  # an end of the text that may become a tag
        self._space: list[str] = []  # white space whose fate the next character decides
        self._raw: list[str] = []  # the text of a call that has not started yet
        self._call = Call(0)
        self._calls = 0
        self._events: list[ParseEvent] = []

    def feed(self, text: str, token_ids: Sequence[int] = ()) -> list[ParseEvent]:
        """Take in the next piece of the text and return what is certain by now."""
        data, position = self._rest + text, 0
        while True:
            before = (position, self._state)
            if self._state is _State.CALL:
                position = self._in_call(data, position)
            elif self._state is _State.AFTER_CALL:
                position = self._after_call(data, position)
            else:
                position = self._prose(data, position)
            if (position, self._state) == before:
                break
        self._rest = data[position:]
        return self._take()

    def finish(self) -> list[ParseEvent]:
        """End the message."""
        rest, self._rest = self._rest, ""
        if self._state is _State.CALL:
            self._give_up()
        elif self._state is not _State.AFTER_CALL:
            self._emit(rest)
        if not self._at_block_start:
            self._put("".join(self._space))
        return self._take()

    def _take(self) -> list[ParseEvent]:
        events, self._events = self._events, []
        return events

    def _prose(self, data: str, position: int) -> int:
        """Pass on text or reasoning up to the next tag."""
        found = _TAG[self._state].search(data, position)
        if found is None:
            end = _tag_may_begin(data, position, _TAGS[self._state])
            self._emit(data[position:end])
            return end
        tag = found[0]
        self._emit(data[position : found.start()])
        if tag == _CALL:
            self._state, self._call = _State.CALL, Call(self._calls)
            self._raw = [*self._space, tag]
        else:
            self._state = _State.REASONING if tag == _THINK else _State.TEXT
            self._at_block_start = True
        self._space.clear()
        return found.end()

    def _in_call(self, data: str, position: int) -> int:
        call, end = self._call, self._call.feed(data, position)
        if not call.started:
            self._raw.append(data[position:end])
        self._events += call.take()
        if call.failed:
            self._give_up()
        elif call.done:
            self._state, self._at_block_start = _State.AFTER_CALL, True
            self._calls += 1
        return end

    def _give_up(self) -> None:
        """Leave a call that is not one, or not any more."""
        self._state = _State.TEXT
        if self._call.started:
            self._events += self._call.close()
            self._calls += 1
            self._at_block_start = True
        else:
            self._emit("".join(self._raw))

    def _after_call(self, data: str, position: int) -> int:
        """Step over the closing tag; one that is missing is not missed."""
        start = _SPACES.match(data, position).end()  # type: ignore[union-attr]
        next_text = data[start : start + len(_CALL_END)]
        if next_text == _CALL_END:
            start += len(_CALL_END)
        elif _CALL_END.startswith(next_text):
            return start
        self._state = _State.TEXT
        return start

    def _emit(self, text: str) -> None:
        """Pass on text, but hold white space at its end, and drop it at the start of a block."""
        body = text.rstrip(_SPACE)
        if body:
            if self._at_block_start:
                self._space.clear()
                text, body = text.lstrip(_SPACE), body.lstrip(_SPACE)
                self._at_block_start = False
            self._put("".join(self._space) + body)
            self._space = []
        if len(text) > len(body):
            self._space.append(text[len(body) :])

    def _put(self, text: str) -> None:
        if text:
            self._events.append(Reasoning(text) if self._state is _State.REASONING else Text(text))


def _tag_may_begin(data: str, position: int, tags: Sequence[str]) -> int:
    """Return where an unfinished tag begins at the end of `data`, or its length."""
    at = data.rfind("<", position)
    return at if at >= 0 and any(tag.startswith(data[at:]) for tag in tags) else len(data)
