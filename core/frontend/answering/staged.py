"""One parser behind the other: the reasoning parser tells thinking and text apart, the tool parser finds the calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from core.api.parsers import (
    OutputParser,
    ParseEvent,
    ParserContext,
    Reasoning,
    Text,
    ToolArguments,
    ToolEnd,
    ToolStart,
)
from core.frontend.answering.marked import Factory

TOOLS, REASONING = "tools", "reasoning"


class Staged:
    """Gives what a reasoning parser takes for thinking, and what it shows, to a tool parser.

    A call ends the thinking in which it begins. The reasoning parser does not know of that: what it still takes for
    thinking is text, or goes on with the call, until it has seen the thinking's own end.

    Args:
        reasoning: Reads the whole message.
        tools: Makes the tool parser of a stretch of thinking, or of text.
        closed: Nothing but its own end ends the thinking: there are no calls in it.
    """

    def __init__(self, reasoning: OutputParser, tools: Callable[[], OutputParser], *, closed: bool = False) -> None:
        self._reasoning, self._make = reasoning, tools
        self._closed = closed
        self._tools: OutputParser | None = None
        self._thinking = False  # what the tool parser reads was thought
        self._cut_short = False  # a call has ended that thinking
        self._calls = 0  # of the message so far
        self._first = 0  # number of the tool parser's first call

    def feed(self, text: str, token_ids: Sequence[int] = ()) -> list[ParseEvent]:
        """Take in the next piece of the text and return what is certain by now."""
        return self._pass(self._reasoning.feed(text, token_ids))

    def finish(self) -> list[ParseEvent]:
        """End the message."""
        return [*self._pass(self._reasoning.finish()), *self._end()]

    def _pass(self, events: Sequence[ParseEvent]) -> list[ParseEvent]:
        found: list[ParseEvent] = []
        for event in events:
            if isinstance(event, Text) or (isinstance(event, Reasoning) and not self._closed):
                found += self._read(event.text, thinking=isinstance(event, Reasoning))
            else:
                found.append(event)
        return found

    def _read(self, text: str, *, thinking: bool) -> list[ParseEvent]:
        ended: list[ParseEvent] = []
        if thinking != self._thinking and not self._cut_short:
            ended = self._end()
        if thinking != self._thinking:
            self._thinking, self._cut_short = thinking, False
        if self._tools is None:
            self._tools, self._first = self._make(), self._calls
        return ended + [self._of_message(event) for event in self._tools.feed(text)]

    def _end(self) -> list[ParseEvent]:
        """End the stretch that is being read."""
        tools, self._tools = self._tools, None
        return [] if tools is None else [self._of_message(event) for event in tools.finish()]

    def _of_message(self, event: ParseEvent) -> ParseEvent:
        """Return the event of a stretch as one of the message."""
        if isinstance(event, ToolStart):
            self._cut_short, self._calls = self._thinking, self._calls + 1
        if isinstance(event, ToolStart | ToolArguments | ToolEnd):
            return replace(event, index=self._first + event.index) if self._first else event
        return Reasoning(event.text) if self._thinking and not self._cut_short else event


def reading(parser: Factory, what: str) -> Factory:
    """Return what makes a parser that reads nothing but `what`, of what the request wants read."""
    return lambda ctx: parser(replace(ctx, reads=ctx.reads & {what}))


def staged(tools: Factory, reasoning: Factory, *, closed: bool) -> Factory:
    """Return what makes both parsers, one behind the other.

    Args:
        closed: Nothing but its own end ends the thinking.
    """

    def make(ctx: ParserContext) -> OutputParser:
        first = reading(reasoning, REASONING)(ctx)
        if TOOLS not in ctx.reads:
            return first
        behind = replace(ctx, in_reasoning=False)
        return Staged(first, lambda: reading(tools, TOOLS)(behind), closed=closed)

    return make
