"""Messages for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator

from core.api import Reasoning, Text, ToolArguments, ToolEnd, ToolStart
from core.api.parsers import ParseEvent
from core_testing.conformance import ParserSample

_WEATHER = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris, \\"FR\\"", "days": [1, 2]}}\n</tool_call>'
)
_ARGUMENTS = '{"city": "Paris, \\"FR\\"", "days": [1, 2]}'


def _call(index: int, name: str, arguments: str) -> list[ParseEvent]:
    return [ToolStart(index, name), ToolArguments(index, arguments), ToolEnd(index)]


def samples() -> Iterator[ParserSample]:
    """Yield calls, several calls, text around them, reasoning, and what only looks like a call."""
    call = _call(0, "get_weather", _ARGUMENTS)
    yield ParserSample("one call", _WEATHER, call)
    yield ParserSample("text and a call", f"Let me look.\n{_WEATHER}\n", [Text("Let me look."), *call])
    second = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    yield ParserSample("two calls", f"{_WEATHER}\n{second}", [*call, *_call(1, "now", "{}")])
    thought = f"<think>\nParis it is.\n</think>\n\nWait.\n{_WEATHER}"
    yield ParserSample("reasoning", thought, [Reasoning("Paris it is."), Text("Wait."), *call])
    begun: list[ParseEvent] = [Reasoning("Hm."), Text("Hello.")]
    yield ParserSample("reasoning that the prompt began", "Hm.\n</think>\nHello.", begun, in_reasoning=True)
    early = f"<think>\nParis it is.\n{_WEATHER}\n</think>\nWait."
    yield ParserSample("a call ends the thinking", early, [Reasoning("Paris it is."), *call, Text("Wait.")])
    about = f"<think>Is it <tool_call>?</think>{_WEATHER}"
    yield ParserSample("a tag in the thinking", about, [Reasoning("Is it <tool_call>?"), *call])
    broken = '<tool_call> {"name": 3} </tool_call>'
    yield ParserSample("no call at all", f"See: {broken}.", [Text(f"See: {broken}.")])
