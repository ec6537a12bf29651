"""Messages of a family for the conformance kit, made from how the family writes calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from core.api import Reasoning, Text, ToolArguments, ToolEnd, ToolStart
from core.api.parsers import ParseEvent
from core_testing.conformance import ParserSample

Arguments = Mapping[str, Any]
Writer = Callable[[Sequence[tuple[str, Arguments]]], str]
"""Writes a message's calls, tags included."""

PLAIN: Arguments = {"city": "Paris", "unit": "celsius"}
NESTED: Arguments = {"query": {"and": [{"a": 1}, {"b": [True, None, -2.5]}]}, "limit": 3}
ODD: Arguments = {"text": 'é "quoted" \\ 😀\nsecond line <b>', "empty": {}}

PADDED: Arguments = {"text": "\n  first line\n\nlast line \n\n", "blank": " ", "line": "\n"}
"""Texts that begin and end with white space, as files do."""


def call(index: int, name: str, arguments: Arguments) -> list[ParseEvent]:
    """Return the events of one call."""
    text = json.dumps(arguments, ensure_ascii=False)
    return [ToolStart(index, name), ToolArguments(index, text), ToolEnd(index)]


def calls_of(write: Writer, *, several: bool = True, around: bool = True) -> Iterator[ParserSample]:
    """Yield messages with one call, odd texts, white space, nested values, two calls, and text around.

    Args:
        several: The family can write more than one call.
        around: There may be text before the calls; without it, calls are the whole message.
    """
    titled = {"one call": PLAIN, "nested values": NESTED, "odd texts": ODD, "white space": PADDED, "no arguments": {}}
    for title, arguments in titled.items():
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


def thought_and_calls(opens: str, closes: str, write: Writer, tag: str = "") -> Iterator[ParserSample]:
    """Yield messages that think, speak and call, that call while they think, and that think about calls.

    Args:
        tag: Begins a call; without it, what `write` writes in front of a call's name.
    """
    one, events = write([("get_weather", PLAIN)]), call(0, "get_weather", PLAIN)
    text = f"{opens}\nParis it is.\n{closes}\n\nWait.\n{one}"
    yield ParserSample("reasoning, text and a call", text, [Reasoning("Paris it is."), Text("Wait."), *events])
    thought = Reasoning("Paris it is.")
    yield ParserSample("a call ends the thinking", f"{opens}\nParis it is.\n{one}", [thought, *events])
    late = f"{opens}\nParis it is.\n{one}\n{closes}\n\nWait."
    yield ParserSample("the thinking's end behind its call", late, [thought, *events, Text("Wait.")])
    tag = tag or one.partition("get_weather")[0].strip()
    yield ParserSample(
        "a tag in the thinking", f"{opens}\nIs it {tag} or not?\n{closes}\n\nYes.\n{one}",
        [Reasoning(f"Is it {tag} or not?"), Text("Yes."), *events],
    )  # fmt: skip


def dumped(arguments: Arguments) -> str:
    """Return arguments as models write JSON."""
    return json.dumps(arguments, ensure_ascii=False)


def named(name: str, arguments: Arguments, key: str = "arguments") -> str:
    """Return the object `{"name": ..., "arguments": ...}`."""
    return f'{{"name": "{name}", "{key}": {dumped(arguments)}}}'
