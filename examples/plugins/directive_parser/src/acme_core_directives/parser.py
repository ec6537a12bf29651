"""Calls and reasoning as lines.

    @@think                       @@call get_weather
    any text                      city: "Paris"
    @@end                         days: 3
                                  @@end

A value is JSON, or else it is taken as a text. A call ends the thinking in which it begins. The line break in front of
a directive belongs to the directive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, NoReturn

from core.api import ParserContext, Reasoning, Text, ToolArguments, ToolEnd, ToolStart
from core.api.parsers import ParseEvent

MARK = "@@"
_CALL = re.compile(r"@@call[ \t]+(\S+)")
_ARGUMENT = re.compile(r"[ \t]*([A-Za-z_][\w.-]*)[ \t]*:[ \t]*(.*)")


class _State(Enum):
    TEXT = auto()
    REASONING = auto()
    CALL = auto()


class DirectiveParser:
    """Parses one message, line by line; prose is passed on while it arrives.

    A call ends at `@@end`, at the next directive, at a line that is no argument, or with the message; its arguments
    are valid JSON in each case.
    """

    def __init__(self, ctx: ParserContext) -> None:
        self._state = _State.REASONING if ctx.in_reasoning else _State.TEXT
        self._line: list[str] = []  # the current line, as long as it may be a directive or is an argument
        self._held = False  # the line begins with the mark: nothing of it is certain before its end
        self._prose = False  # the line is prose: its pieces are passed on
        self._owed = False  # a line break whose fate the next line decides
        self._calls = 0
        self._keys: set[str] = set()
        self._events: list[ParseEvent] = []

    def feed(self, text: str, token_ids: Sequence[int] = ()) -> list[ParseEvent]:
        """Take in the next piece of the text and return what is certain by now."""
        *lines, rest = text.split("\n")
        for line in lines:
            self._add(line)
            self._end_line(broken=True)
        self._add(rest)
        return self._take()

    def finish(self) -> list[ParseEvent]:
        """End the message."""
        if self._line:
            self._end_line(broken=False)
        if self._state is _State.CALL:
            self._close_call()
        self._put("")
        return self._take()

    def _take(self) -> list[ParseEvent]:
        events, self._events = self._events, []
        return events

    def _add(self, piece: str) -> None:
        """Add to the current line."""
        if self._prose:
            self._put(piece)
        elif piece:
            self._line.append(piece)
            if self._state is not _State.CALL and not self._held:
                self._decide()

    def _decide(self) -> None:
        start = "".join(self._line)
        self._held = start.startswith(MARK)
        if not self._held and not MARK.startswith(start):
            self._prose = True
            self._line.clear()
            self._put(start)

    def _end_line(self, *, broken: bool) -> None:
        """Settle the current line; `broken` says whether a line break ends it, or the message does."""
        line, prose = "".join(self._line), self._prose
        self._line.clear()
        self._held = self._prose = False
        if prose:
            self._owed = broken
        elif self._state is not _State.CALL or not self._argument(line):
            self._plain_line(line, broken)

    def _plain_line(self, line: str, broken: bool) -> None:
        if not self._directive(line.rstrip()):
            if self._state is _State.CALL:
                self._close_call()
            self._put(line)
            self._owed = broken

    def _directive(self, line: str) -> bool:
        """Obey a directive; False if the line is none here."""
        call = _CALL.fullmatch(line)
        if self._state is _State.REASONING and line != "@@end" and call is None:
            return False
        if call is None and line not in ("@@think", "@@end"):
            return False
        if line == "@@end" and self._state is _State.TEXT:
            return False
        if self._state is _State.CALL:
            self._close_call()
        self._owed = False
        self._state = _State.TEXT
        if call is not None:
            self._open_call(call[1])
        elif line == "@@think":
            self._state = _State.REASONING
        return True

    def _open_call(self, name: str) -> None:
        self._state = _State.CALL
        self._keys.clear()
        self._events.append(ToolStart(self._calls, name))

    def _close_call(self) -> None:
        self._state = _State.TEXT
        self._events += [ToolArguments(self._calls, "}" if self._keys else "{}"), ToolEnd(self._calls)]
        self._calls += 1

    def _argument(self, line: str) -> bool:
        """Pass on an argument; a second value for a key is dropped. Empty lines count as arguments."""
        found = _ARGUMENT.fullmatch(line.rstrip())
        if found is None:
            return not line.strip()
        key, value = found.groups()
        if key not in self._keys:
            text = f"{', ' if self._keys else '{'}{json.dumps(key)}: {_as_json(value)}"
            self._events.append(ToolArguments(self._calls, text))
            self._keys.add(key)
        return True

    def _put(self, piece: str) -> None:
        """Pass on prose, behind the line break that was held back."""
        text = f"\n{piece}" if self._owed else piece
        self._owed = False
        if text:
            self._events.append(Reasoning(text) if self._state is _State.REASONING else Text(text))


def _as_json(value: str) -> str:
    """Return `value` if it is JSON, else the JSON text that says it."""
    try:
        json.loads(value, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return json.dumps(value)
    return value


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def arguments_of(events: Sequence[ParseEvent], index: int) -> Any:
    """Return call `index`'s arguments as a value: what a client makes of the events."""
    return json.loads("".join(one.json for one in events if isinstance(one, ToolArguments) and one.index == index))
