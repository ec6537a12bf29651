"""Messages for the conformance kit, in formats that templates of several kinds describe."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from core_plugin_parsers.samples import PLAIN, Arguments, Writer, call, calls_of, dumped, named, thoughts

from core.api import Reasoning, Text, ToolArguments, ToolEnd, ToolStart
from core.api.parsers import ParseEvent
from core_testing.conformance import ParserSample

Template = Mapping[str, Any]
Calls = Sequence[tuple[str, Arguments]]

_THINK = {"open": "<think>", "close": "</think>"}
_FUNCTION = {"type": "function", "function": {"name": "{content.name}", "arguments": "{content.arguments}"}}

JSON_TEMPLATE: Template = {
    "version": 1,
    "start_anchor": "<|im_start|>assistant\n",
    "defaults": {"role": "assistant"},
    "fields": {
        "content": {"close": "<|im_end|>", "repeats": True, "join": "\n"},
        "reasoning_content": _THINK,
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": _FUNCTION,
        },
    },
}
"""JSON between literals."""

CHANNEL_TEMPLATE: Template = {
    "start_anchor": "<|start|>assistant",
    "fields": {
        "content": {
            "open_pattern": r"<\|channel\|>final<\|message\|>",
            "close": ["<|return|>", "<|end|>"],
        },
        "thinking": {"open": "<|channel|>analysis<|message|>", "close": "<|end|>"},
        "tool_calls": {
            "open_pattern": r"<\|channel\|>commentary to=functions\.(?P<name>[\w-]+)(?: *<\|.*?json)?<\|message\|>",
            "close": "<|call|>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
    },
}
"""Patterns with groups; text outside of fields is seen by nobody."""

TAGS_TEMPLATE: Template = {
    "start_anchor_pattern": r"<\|im_start\|>assistant\n?",
    "fields": {
        "content": {},
        "thinking": _THINK,
        "tool_calls": {
            "open_pattern": r"<tool_call>\s*<function=(?P<name>[^>]+)>",
            "close_pattern": r"</function>\s*</tool_call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>]+)>\n?(?P<value>.*?)\n?</parameter>"},
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
    },
}
"""Elements, whose values are texts until the tool's schema says more."""

QUOTES_TEMPLATE: Template = {
    "start_anchor": "<start_of_turn>model\n",
    "fields": {
        "content": {"close": "<end_of_turn>"},
        "tool_calls": {
            "open_pattern": r"<\|tool_call>call:(?P<name>\w+)",
            "close": "<tool_call|>",
            "repeats": True,
            "content": "json",
            "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
    },
}
"""JSON with bare keys and quotes of its own."""

TEMPLATES = (JSON_TEMPLATE, CHANNEL_TEMPLATE, TAGS_TEMPLATE, QUOTES_TEMPLATE)

_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOLS = ({"type": "function", "function": {"name": "get_weather", "parameters": _SCHEMA}},)


def _objects(calls: Calls) -> str:
    return "\n".join(f"<tool_call>\n{named(*one)}\n</tool_call>" for one in calls)


def _channels(calls: Calls) -> str:
    return "<|start|>assistant".join(
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{dumped(arguments)}<|call|>"
        for name, arguments in calls
    )


def _quoted(calls: Calls) -> str:
    def value(data: Any) -> str:
        if isinstance(data, str):
            return f'<|"|>{data}<|"|>'
        if isinstance(data, Mapping):
            return "{" + ",".join(f"{key}:{value(one)}" for key, one in data.items()) + "}"
        return "[" + ",".join(map(value, data)) + "]" if isinstance(data, list) else json.dumps(data)

    return "".join(f"<|tool_call>call:{name}{value(arguments)}<tool_call|>" for name, arguments in calls)


def samples() -> Iterator[ParserSample]:
    """Yield calls in every format, thoughts, typed values, and what only looks like a call."""
    formats: Sequence[tuple[Template, Writer, bool]] = (
        (JSON_TEMPLATE, _objects, True),
        (CHANNEL_TEMPLATE, _channels, False),
        (QUOTES_TEMPLATE, _quoted, True),
    )
    for template, write, around in formats:
        yield from (_in(template, sample) for sample in calls_of(write, around=around))
    for template in (JSON_TEMPLATE, TAGS_TEMPLATE):
        yield from (_in(template, sample) for sample in thoughts("<think>", "</think>"))
    yield from _channel_samples()
    yield _typed()
    broken = "<tool_call> {not JSON} </tool_call>"
    yield ParserSample("no call", f"So {broken} it is", [Text(f"So {broken} it is")], response_template=JSON_TEMPLATE)
    cut = _objects([("get_weather", {"city": "Paris"})])
    events = call(0, "get_weather", {"city": "Par"})
    yield ParserSample("a call that breaks off", cut[: cut.index("Paris") + 3], events, response_template=JSON_TEMPLATE)
    yield ParserSample("without a template", " <tool_call>{", [Text(" <tool_call>{")])


def _typed() -> ParserSample:
    values = "<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    text = f"<tool_call>\n<function=get_weather>\n{values}</function>\n</tool_call>"
    events: list[ParseEvent] = [ToolStart(0, "get_weather"), ToolArguments(0, '{"city": "12", "days": 3}'), ToolEnd(0)]
    return ParserSample("types of the schema", text, events, TOOLS, response_template=TAGS_TEMPLATE)


def _channel_samples() -> Iterator[ParserSample]:
    final = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>"
    yield _in(CHANNEL_TEMPLATE, ParserSample("an answer", final, [Reasoning("Hm."), Text("Yes.")]))
    both = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant" + _channels([("get_weather", PLAIN)])
    events = [Reasoning("Hm."), *call(0, "get_weather", PLAIN)]
    yield _in(CHANNEL_TEMPLATE, ParserSample("a thought and a call", both, events))


def _in(template: Template, sample: ParserSample) -> ParserSample:
    return replace(sample, response_template=template)
