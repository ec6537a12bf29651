"""Messages of a family for the conformance kit, made from how the family writes calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from core.api import Reasoning, Text, ToolArguments, ToolEnd, ToolStart
from core.api.parsers import ParseEvent
from core.testing.conformance import ParserSample

Arguments = Mapping[str, Any]
Writer = Callable[[Sequence[tuple[str, Arguments]]], str]
"""Writes a message's calls, tags included."""

PLAIN: Arguments = {"city": "Paris", "unit": "celsius"}
NESTED: Arguments = {"query": {"and": [{"a": 1}, {"b": [True, None, -2.5]}]}, "limit": 3}
ODD: Arguments = {"text": 'é "quoted" \\ 😀\nsecond line <b>', "empty": {}}


def call(index: int, name: str, arguments: Arguments) -> list[ParseEvent]:
    """Return the events of one call."""
    text = json.dumps(arguments, ensure_ascii=False)
    return [ToolStart(index, name), ToolArguments(index, text), ToolEnd(index)]


def calls_of(write: Writer, *, several: bool = True, around: bool = True) -> Iterator[ParserSample]:
    """Yield messages with one call, odd texts, nested values, two calls, and text around.

    Args:
        several: The family can write more than one call.
        around: There may be text before the calls; without it, calls are the whole message.
    """
    for title, arguments in (("one call", PLAIN), ("nested values", NESTED), ("odd texts", ODD), ("no arguments", {})):
        yield ParserSample(title, write([("get_weather", arguments)]), call(0, "get_weather", arguments))
    if several:
        both = [("get_weather", PLAIN), ("search", NESTED)]
        events = [*call(0, *both[0]), *call(1, *both[1])]
        yield ParserSample("two calls", write(both), events)
    if around:
        text = f"Let me look.\n{write([('get_weather', PLAIN)])}"
        yield ParserSample("text and a call", text, [Text("Let me look."), *call(0, "get_weather", PLAIN)])


def thoughts(opens: str, closes: str, then: str = "") -> Iterator[ParserSample]:
    """Yield messages with reasoning between tags; `then` stands in front of the answer."""
    events: list[ParseEvent] = [Reasoning("Is it 4 < 5?\nYes."), Text("It is.")]
    yield ParserSample("reasoning", f"{opens}\nIs it 4 < 5?\nYes.\n{closes}{then}\n\nIt is.", events)
    begun = f"Is it 4 < 5?\nYes.\n{closes}{then}\n\nIt is."
    yield ParserSample("reasoning that the prompt began", begun, events, in_reasoning=True)
    open_end = ParserSample(
        "reasoning that does not end", f"{opens}\nHm, {closes[:2]}", [Reasoning(f"Hm, {closes[:2]}")]
    )
    yield open_end


def thought_and_calls(opens: str, closes: str, write: Writer) -> Iterator[ParserSample]:
    """Yield a message that thinks, speaks and calls."""
    text = f"{opens}\nParis it is.\n{closes}\n\nWait.\n{write([('get_weather', PLAIN)])}"
    yield ParserSample("reasoning, text and a call", text, [
        Reasoning("Paris it is."), Text("Wait."), *call(0, "get_weather", PLAIN)
    ])  # fmt: skip


def dumped(arguments: Arguments) -> str:
    """Return arguments as models write JSON."""
    return json.dumps(arguments, ensure_ascii=False)


def named(name: str, arguments: Arguments, key: str = "arguments") -> str:
    """Return the object `{"name": ..., "arguments": ...}`."""
    return f'{{"name": "{name}", "{key}": {dumped(arguments)}}}'
