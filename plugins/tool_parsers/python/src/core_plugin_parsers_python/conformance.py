"""Messages for the conformance kit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from core_plugin_parsers.samples import NESTED, PLAIN, Arguments, Writer, call, calls_of, thought_and_calls, thoughts

from core.api import Text, ToolArguments, ToolEnd, ToolStart
from core.api.parsers import ParseEvent
from core_testing.conformance import ParserSample

Calls = Sequence[tuple[str, Arguments]]


def _python(name: str, arguments: Arguments) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def listed(opens: str, closes: str) -> Writer:
    """Write calls as a Python list."""
    return lambda calls: f"{opens}[{', '.join(_python(*one) for one in calls)}]{closes}"


def _lines(calls: Calls) -> str:
    return "<function_calls>\n" + "\n".join(_python(*one) for one in calls) + "\n</function_calls>"


def braced(opens: str, closes: str, quote: str) -> Writer:
    """Write `call:f{k:v}` with texts between `quote`."""

    def value(data: Any) -> str:
        if isinstance(data, str):
            return f"{quote}{data}{quote}"
        if isinstance(data, list):
            return f"[{', '.join(map(value, data))}]"
        if isinstance(data, dict):
            return "{" + ", ".join(f"{key}: {value(one)}" for key, one in data.items()) + "}"
        return json.dumps(data)

    return lambda calls: "".join(f"{opens}call:{name}{value(dict(arguments))}{closes}" for name, arguments in calls)


WRITERS: dict[str, Writer] = {
    "pythonic": listed("", ""),
    "llama4_pythonic": listed("<|python_start|>", "<|python_end|>"),
    "olmo3": _lines,
    "lfm2": listed("<|tool_call_start|>", "<|tool_call_end|>"),
    "functiongemma": braced("<start_function_call>", "<end_function_call>", "<escape>"),
    "gemma4": braced("<|tool_call>", "<tool_call|>", '<|"|>'),
}
THINKING = {
    "olmo3": ("<think>", "</think>"),
    "lfm2": ("<think>", "</think>"),
    "gemma4": ("<|channel>thought", "<channel|>"),
}


def samples() -> Iterator[ParserSample]:
    """Yield calls of every family, its thoughts, and what only looks like a call."""
    for name, write in WRITERS.items():
        found = list(calls_of(write, around=name != "pythonic"))
        if name in THINKING:
            found += [*thoughts(*THINKING[name]), *thought_and_calls(*THINKING[name], write)]
        yield from (replace(sample, plugin=name) for sample in found)
    for text in ("[1, 2, 3]", "[f(a=g())]", "[f(1)]", "[see(text"):
        yield ParserSample(f"no call: {text}", text, [Text(text)], plugin="pythonic")
    words = "[f(a=null, b=true, c=False)]"
    yield ParserSample("JSON's words", words, call(0, "f", {"a": None, "b": True, "c": False}), plugin="pythonic")
    bare = listed("", "")([("get_weather", PLAIN), ("search", NESTED)])
    two = [*call(0, "get_weather", PLAIN), *call(1, "search", NESTED)]
    yield ParserSample("without tags", bare, two, plugin="llama4_pythonic")
    for title, python, arguments in (
        ("a line break in a text", '[f(a="one\n07 two\n", b=1)]', {"a": "one\n07 two\n", "b": 1}),
        ("zeros in front of numbers", "[f(a=07, b=[-007.5, 0, 10])]", {"a": 7, "b": [-7.5, 0, 10]}),
    ):
        text = f"<|tool_call_start|>{python}<|tool_call_end|>"
        yield ParserSample(title, text, call(0, "f", arguments), plugin="lfm2")
    yield from (replace(one, plugin="functiongemma") for one in _braced("<start_function_call>", "<escape>"))
    yield from (replace(one, plugin="gemma4") for one in _braced("<|tool_call>", '<|"|>'))


def _braced(opens: str, quote: str) -> Iterator[ParserSample]:
    """Yield calls that break off somewhere."""
    for number, (text, arguments) in enumerate((
        (f"{{a:{quote}b", '{"a":"b"}'),
        (f"{{a:{quote}b{quote}}}", '{"a":"b"}'),
        (f"{{a:[1,{{b:{quote}c{quote},d:tr", '{"a":[1,{"b":"c"}]}'),
        ("{a:1,", '{"a":1}'),
        ("{", "{}"),
    ), 1):  # fmt: skip
        events: list[ParseEvent] = [ToolStart(0, "f"), ToolArguments(0, arguments), ToolEnd(0)]
        yield ParserSample(f"a call that breaks off, {number}", f"{opens}call:f{text}", events)
