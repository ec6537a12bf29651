"""Readers of a block's calls: the contract between the machine and the forms of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from core.api import ParserContext, ToolArguments, ToolEnd, ToolStart
from core.api.parsers import ParseEvent


class CallSink:
    """Takes a message's calls and numbers them.

    Attributes:
        count: Calls that have ended.
        is_open: A call was started and has not ended.
        tools: JSON schema of the parameters of each tool that the request offers, by name.
    """

    def __init__(self, ctx: ParserContext) -> None:
        self.count = 0
        self.is_open = False
        self.tools: Mapping[str, Mapping[str, Any]] = schemas(ctx.tools)
        self._events: list[ParseEvent] = []

    def start(self, name: str) -> None:
        """Begin a call."""
        self.is_open = True
        self._events.append(ToolStart(self.count, name))

    def arguments(self, json: str) -> None:
        """Add a piece of the call's arguments."""
        if json:
            self._events.append(ToolArguments(self.count, json))

    def end(self) -> None:
        """End the call; its pieces joined are a JSON object by now."""
        self._events.append(ToolEnd(self.count))
        self.is_open = False
        self.count += 1

    def whole(self, name: str, arguments: str) -> None:
        """Add a call that is known at once."""
        self.start(name)
        self.arguments(arguments)
        self.end()

    def take(self) -> list[ParseEvent]:
        """Return the events since the last call of this method."""
        events, self._events = self._events, []
        return events


def schemas(tools: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the parameters' JSON schema of each of OpenAI's `tools`, by name."""
    functions = [tool.get("function", tool) for tool in tools]
    return {function["name"]: function.get("parameters") or {} for function in functions if "name" in function}


class Reader(Protocol):
    """Reads one block of calls.

    Attributes:
        ended: The block is over, its closing tag included; the text behind it is prose. Tags with nothing between
            them are no block.
        failed: What stands where reading stopped belongs to no call. A call that was started is ended by then. Where
            none was, all of the block is prose.
    """

    @property
    def ended(self) -> bool: ...

    @property
    def failed(self) -> bool: ...

    def feed(self, data: str, start: int) -> int:
        """Read `data` from `start` and return where reading stopped.

        It returns at the end of every call, and stops short of the end where more text is needed; the same text is
        then given again with more behind it. What is held like this is at most a tag long.
        """
        ...

    def finish(self) -> None:
        """Take note that the message ends; a call that was started is ended, with valid JSON."""
        ...


class CallForm(Protocol):
    """How calls are written, as data."""

    def reader(self, sink: CallSink) -> Reader:
        """Return a reader for one block."""
        ...
