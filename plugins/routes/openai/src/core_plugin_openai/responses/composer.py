"""From what a parser reads in the model's text to the events of the API, in their order."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence

from core.api.parsers import ParseEvent, Reasoning, Text, ToolArguments, ToolEnd, ToolStart
from core_plugin_openai.responses.output import (
    COMPLETED,
    INCOMPLETE,
    CallItem,
    Event,
    MessageItem,
    OpenCall,
    OpenItem,
    ReasoningItem,
    Score,
)

_MESSAGE, _REASONING, _CALL = "message", "reasoning", "call"

CallId = Callable[[str, int], str]
CallMaker = Callable[[int, str, str], OpenCall]
"""Opens a call: its place in the output, the function's name, the call's id."""


def _random_id(name: str, number: int) -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


class Composer:
    """Opens, grows and ends the output items of one answer.

    Blank text in front of an item's first word is held back: between thinking and calls it is layout, and would be an
    item of its own.

    Args:
        max_calls: After this many calls the answer is over.
        call_id: Makes a call's id from the function's name and the call's number in this answer.
        show_ids: Put the tokens' ids into the events, as `token_ids`.
        make_call: Opens a call's item.

    Attributes:
        full: The last call that may be made has been made.
        make_call: As given.
        reasoning_tokens: How many tokens were thinking, to the token where the engine hands over one at a time.
    """

    def __init__(
        self,
        *,
        max_calls: int | None = None,
        call_id: CallId | None = None,
        show_ids: bool = False,
        make_call: CallMaker = CallItem,
    ) -> None:
        self.full = False
        self.reasoning_tokens = 0
        self._calls_left = max_calls
        self._call_id = call_id or _random_id
        self._show_ids = show_ids
        self.make_call = make_call
        self._text: OpenItem | None = None
        self._kind: str | None = None  # of what was said last
        self._calls: dict[int, OpenCall] = {}
        self._count = 0
        self._blank = ""
        self._scores: list[Score] = []
        self._ids: list[int] = []

    def add(self, said: Iterable[ParseEvent], ids: Sequence[int] = (), scores: Sequence[Score] = ()) -> list[Event]:
        """Return the events for a further piece of the answer: what was read, its tokens, and their scores."""
        self._scores += scores
        self._ids += ids if self._show_ids else ()
        events: list[Event] = []
        for piece in _joined(said):
            if not self.full:
                events += self._piece(piece)
        if self._kind in (_REASONING, _CALL):
            self._scores = []  # log-probabilities have a place in visible text only
        if self._kind == _REASONING:
            self.reasoning_tokens += len(ids)
        return self._with_ids(events)

    def finish(self, status: str = COMPLETED) -> list[Event]:
        """Return the events that end the answer; what is still open gets `status`. There is always an item."""
        events: list[Event] = []
        if not self._count:
            events += [*self._open(_MESSAGE), *([self._grown(self._blank)] if self._blank else [])]
        return self._with_ids([*events, *self.end_turn(status)])

    def end_turn(self, status: str = COMPLETED) -> list[Event]:
        """Return the events that end what is still open; the model may speak again, and call with numbers from 0."""
        events: list[Event] = []
        if self._kind == _MESSAGE and self._text is not None and self._scores:
            events.append(self._grown(""))
        # A call that its parser did not end has been cut off, whatever ended the answer.
        cut = [event for call in self._calls.values() for event in call.ended(INCOMPLETE)]
        self._calls, self._kind, self._scores = {}, None, []
        return [*events, *self._end_text(status), *cut]

    def begin_turn(self, max_calls: int | None, call_id: CallId | None) -> None:
        """Let the model speak again: so many calls, with these ids."""
        self.full, self._calls_left = False, max_calls
        self._call_id = call_id or _random_id

    def claim(self) -> int:
        """Return the place of an item that somebody else makes."""
        self._count += 1
        return self._count - 1

    def rest(self) -> list[int]:
        """Return the ids of tokens behind the last item, which are in no event."""
        ids, self._ids = self._ids, []
        return ids

    def _piece(self, piece: ParseEvent) -> list[Event]:
        if isinstance(piece, Text):
            return self._say(_MESSAGE, piece.text)
        if isinstance(piece, Reasoning):
            return self._say(_REASONING, piece.text)
        if isinstance(piece, ToolStart):
            return self._start(piece)
        call = self._calls.get(piece.index)
        if call is None:
            return []
        if isinstance(piece, ToolArguments):
            return call.grown(piece.json) if piece.json else []
        return self._end_call(piece)

    def _say(self, kind: str, text: str) -> list[Event]:
        events = self._end_text(COMPLETED) if kind != self._kind else []
        self._kind = kind
        if self._text is None:
            text = self._blank + text
            if not text.strip():
                self._blank = text
                return events
            events += self._open(kind)
        return [*events, self._grown(text)]

    def _start(self, piece: ToolStart) -> list[Event]:
        events = self._end_text(COMPLETED)
        self._kind = _CALL
        call_id = self._call_id(piece.name, piece.index)
        call = self._calls[piece.index] = self.make_call(self.claim(), piece.name, call_id)
        return [*events, *call.opened()]

    def _end_call(self, piece: ToolEnd) -> list[Event]:
        if self._calls_left is not None:
            self._calls_left -= 1
            self.full = self._calls_left == 0
        return self._calls.pop(piece.index).ended(COMPLETED)

    def _open(self, kind: str) -> list[Event]:
        self._text = MessageItem(self._count) if kind == _MESSAGE else ReasoningItem(self._count)
        self._kind = kind
        self._count += 1
        return self._text.opened()

    def _grown(self, text: str) -> Event:
        if self._text is None:
            raise RuntimeError("no item is open")
        scores: list[Score] = []
        if self._kind == _MESSAGE:
            scores, self._scores = self._scores, []
        self._blank = ""
        return self._text.grown(text, scores)

    def _end_text(self, status: str) -> list[Event]:
        item, self._text, self._blank = self._text, None, ""
        return item.ended(status) if item is not None else []

    def _with_ids(self, events: list[Event]) -> list[Event]:
        if events and self._ids:
            events[0]["token_ids"] = self._ids
            self._ids = []
        return events


def _joined(said: Iterable[ParseEvent]) -> list[ParseEvent]:
    """Join neighbours of the same kind: one event each is enough."""
    joined: list[ParseEvent] = []
    for piece in said:
        last = joined[-1] if joined else None
        if isinstance(piece, Text) and isinstance(last, Text):
            joined[-1] = Text(last.text + piece.text)
        elif isinstance(piece, Reasoning) and isinstance(last, Reasoning):
            joined[-1] = Reasoning(last.text + piece.text)
        elif isinstance(piece, ToolArguments) and isinstance(last, ToolArguments) and piece.index == last.index:
            joined[-1] = ToolArguments(piece.index, last.json + piece.json)
        else:
            joined.append(piece)
    return joined
