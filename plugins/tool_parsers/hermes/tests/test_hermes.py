from __future__ import annotations

import json
import time

import pytest
from core_plugin_hermes.families import HERMES
from core_plugin_parsers.json_value import JsonScanner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.api import ParserContext, Reasoning, Text, ToolArguments, ToolEnd, ToolStart
from core.api.parsers import ParseEvent

PIECES = [
    "<tool_call>", "</tool_call>", "<think>", "</think>", "<tool", "</", "<", "{", "}", "[", "]", ",", ":", '"', "\\",
    '{"name": "f", "arguments": ', '"arguments": {', '"name"', '"arguments"', '"a"', "\\u00e9", "\\u", "null", "-1.5e3",
    " ", "\n", "text", "é", "😀", "tru", '{"name": "f", "arguments": {"a": [1, {"b": "c\\"d"}]}}', '"{\\"a\\": 1}"',
]  # fmt: skip
messages = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


def joined(events: list[ParseEvent]) -> list[ParseEvent]:
    """Merge neighbours of one kind, as a client does."""
    result: list[ParseEvent] = []
    for event in events:
        last = result[-1] if result else None
        if isinstance(event, (Text, Reasoning)) and type(last) is type(event):
            result[-1] = type(event)(last.text + event.text)
        elif isinstance(event, ToolArguments) and isinstance(last, ToolArguments) and last.index == event.index:
            result[-1] = ToolArguments(event.index, last.json + event.json)
        else:
            result.append(event)
    return result


def parse(*pieces: str, in_reasoning: bool = False) -> list[ParseEvent]:
    parser = HERMES(ParserContext(in_reasoning=in_reasoning))
    events = [event for piece in pieces for event in parser.feed(piece)]
    return joined(events + parser.finish())


def call(index: int, name: str, arguments: str) -> list[ParseEvent]:
    return [ToolStart(index, name), ToolArguments(index, arguments), ToolEnd(index)]


F = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


@pytest.mark.covers("TOOL-01")
@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("", []),
        (" Plain text,\n a < b. \n", [Text(" Plain text,\n a < b. \n")]),
        (F, call(0, "f", '{"a": 1}')),
        (f"Let me see.\n{F}\n", [Text("Let me see."), *call(0, "f", '{"a": 1}')]),
        (f"{F}\n{F}", [*call(0, "f", '{"a": 1}'), *call(1, "f", '{"a": 1}')]),
        (f"{F}\n\nDone. ", [*call(0, "f", '{"a": 1}'), Text("Done. ")]),
        ('<tool_call>{"arguments":{"a":[ ]},"name":"g"}</tool_call>', call(0, "g", '{"a":[ ]}')),
        ('<tool_call>{"id": [1], "name": "g", "arguments": {}, "x": 2}</tool_call>', call(0, "g", "{}")),
        ('<tool_call>{"name": "g"}</tool_call>', call(0, "g", "{}")),
        ('<tool_call>{"name": "g", "arguments": null}</tool_call>', call(0, "g", "{}")),
        ('<tool_call>{"name": "g", "arguments": "{\\"a\\": 1}"}</tool_call>', call(0, "g", '{"a": 1}')),
        ('<tool_call>{"arguments": "{}", "name": "g"}</tool_call>', call(0, "g", "{}")),
        ('<tool_call>{"name": "g", "arguments": {"a": "</tool_call>"}}', call(0, "g", '{"a": "</tool_call>"}')),
        ('<tool_call>{"name": "g", "arguments": {"a": "1\n2"}}', call(0, "g", '{"a": "1\\n2"}')),
    ],
)
def test_calls_and_text(text: str, events: list[ParseEvent]) -> None:
    assert parse(text) == events
    assert parse(*text) == events


@pytest.mark.covers("REASON-01")
def test_reasoning_is_apart_from_text_and_calls() -> None:
    text = f"<think>\nShould I?\n\n</think>\n\nYes.\n{F}"
    want = [Reasoning("Should I?"), Text("Yes."), *call(0, "f", '{"a": 1}')]
    assert parse(text) == parse(*text) == want
    assert parse(text.removeprefix("<think>"), in_reasoning=True) == want
    assert parse("<think>\n\n</think>\n\nHi") == [Text("Hi")]
    assert parse("<think>hm") == [Reasoning("hm")]
    assert parse(f"<think>hm{F}</think>ok") == [Reasoning("hm"), *call(0, "f", '{"a": 1}'), Text("ok")]


def test_a_missing_or_broken_closing_tag_is_not_missed() -> None:
    start = F.removesuffix("</tool_call>")
    assert parse(start) == parse(start + "</tool_c") == call(0, "f", '{"a": 1}')
    assert parse(start + F) == [*call(0, "f", '{"a": 1}'), *call(1, "f", '{"a": 1}')]
    assert parse(start + "bye") == [*call(0, "f", '{"a": 1}'), Text("bye")]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"a": "Pari', '{"a": "Pari"}'),
        ('{"a": "x\\', '{"a": "x"}'),
        ('{"a": "x\\u00e', '{"a": "x"}'),
        ('{"a": [1, {"b": true, "c', '{"a": [1, {"b": true}]}'),
        ('{"a": 1, "b": 12', '{"a": 1}'),
        ('{"a": 1,', '{"a": 1}'),
        ("{", "{}"),
        ('{"a": [', '{"a": []}'),
        ('{"a": {}}', '{"a": {}}'),
    ],
)
def test_an_unfinished_call_is_closed(text: str, arguments: str) -> None:
    message = '<tool_call>{"name": "f", "arguments": ' + text
    assert parse(message) == parse(*message) == call(0, "f", arguments)


@pytest.mark.parametrize(
    "body",
    [
        "", "{", "hello", "[1]", '{"name"', '{"name": "f", "argum', '{"name": "f", "arguments": "{\\"a\\"',
        '{"name": 3, "arguments": {}}</tool_call>', '{"arguments": {}}</tool_call>', "{}</tool_call>",
        '{"name": "", "arguments": {}}', '{"name": "f", "arguments": [1]}</tool_call>',
        '{"name": "f", "arguments": "Paris"}</tool_call>', '{"name": "f", "arguments": "{} {}"}</tool_call>',
        '{"name": "f",, "arguments": {}}', '{"arguments": {"a" 1}, "name": "f"}', '{"name": "f", "name": "g"}',
        '{"name": "\\ud800", "arguments": {}}', '{"name": "f", "arguments": "{\\"a\\": \\"\\ud800\\"}"}',
        '{"name": ' + "9" * 5000 + "}", '{"x": ' + "[" * 200, '{name: "f"}',
    ],
)  # fmt: skip
def test_what_is_not_a_call_stays_text(body: str) -> None:
    text = f"Look: \n<tool_call> {body}\n"
    assert parse(text) == parse(*text) == [Text(text)]


def test_a_second_opening_tag_begins_the_call() -> None:
    assert parse(f"<tool_call>\n{F}") == [Text("<tool_call>"), *call(0, "f", '{"a": 1}')]


def test_arguments_that_turn_out_broken_are_closed_and_the_rest_is_text() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a": 1, b: 2}}</tool_call>'
    assert parse(text) == parse(*text) == [*call(0, "f", '{"a": 1}'), Text("b: 2}}</tool_call>")]
    deep = '<tool_call>{"name": "f", "arguments": {"a": ' + "[" * 200
    events = parse(deep)
    assert json.loads(events[1].json)
    assert isinstance(events[3], Text)


def test_arguments_are_passed_on_while_they_arrive() -> None:
    parser = HERMES(ParserContext())
    parser.feed('<tool_call>{"name": "f", "arguments": {"city": "New')
    assert parser.feed(" York") == [ToolArguments(0, " York")]
    assert parser.feed(" a") == [ToolArguments(0, " a")]


@given(messages, st.data())
@settings(max_examples=300)
@example("<tool_call>{", None)
def test_any_split_gives_the_events_of_one_feed(text: str, data: st.DataObject | None) -> None:
    whole = parse(text)
    assert parse(*text) == whole
    if data is not None:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
        assert parse(*[text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]) == whole


@given(messages, st.booleans())
@settings(max_examples=300)
def test_calls_are_well_formed_whatever_the_text(text: str, in_reasoning: bool) -> None:
    events = parse(text, in_reasoning=in_reasoning)
    calls = [event for event in events if not isinstance(event, (Text, Reasoning))]
    assert len(calls) % 3 == 0
    for index in range(len(calls) // 3):
        start, arguments, end = calls[3 * index : 3 * index + 3]
        assert (start.index, arguments.index, end.index) == (index, index, index)
        assert isinstance(json.loads(arguments.json), dict)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4), st.sampled_from([None, 2]), st.booleans())
def test_any_arguments_come_through(arguments: dict[str, object], indent: int | None, as_text: bool) -> None:
    body = {"name": "f", "arguments": json.dumps(arguments) if as_text else arguments}
    for ascii_only in (True, False):
        start, piece, _ = parse(*f"<tool_call>{json.dumps(body, indent=indent, ensure_ascii=ascii_only)}</tool_call>")
        assert start == ToolStart(0, "f")
        assert json.loads(piece.json) == arguments


@given(values, st.data())
def test_a_scanned_prefix_can_always_be_closed(value: object, data: st.DataObject) -> None:
    text = json.dumps({"v": value}, indent=data.draw(st.sampled_from([None, 1])))
    scanner = JsonScanner()
    cut = data.draw(st.integers(1, len(text)))
    assert scanner.feed(text[:cut], 0) == cut
    json.loads(scanner.take() + scanner.closing())
    assert scanner.done == (cut == len(text)) and not scanner.failed


LONG = 2**18
"""Characters: what is linear takes hundredths of a second for them, what is not tens of seconds."""


def seconds(*pieces: str) -> float:
    started = time.process_time()
    parse(*pieces)
    return time.process_time() - started


@pytest.mark.parametrize(
    "unit",
    [
        "<", " ", "<tool_call>", "<tool_call", "<think></think>", "</think>", "x\n", F, "<tool_call>{",
        '<tool_call>{"name": "f", "arguments": {',
    ],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["", '<tool_call>{"name": "f", "arguments": {"a": "', '<tool_call>{"x": "'])
def test_a_long_text_takes_linear_time(unit: str, prefix: str) -> None:
    text = prefix + unit * (LONG // len(unit))
    assert seconds(text) < 2.5
    assert seconds(*[text[i : i + 128] for i in range(0, LONG // 2, 128)]) < 5


@pytest.mark.parametrize("unit", ['"k":1,', '"k":[', "1", '\\"', "[", "\\u0041", ' "a" :  null ,'])
def test_long_arguments_take_linear_time(unit: str) -> None:
    text = '<tool_call>{"name": "f", "arguments": {' + unit * (LONG // len(unit))
    started = time.process_time()
    whole = parse(text)
    assert time.process_time() - started < 2.5
    assert whole == parse(*[text[i : i + 3] for i in range(0, len(text), 3)])
