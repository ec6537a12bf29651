from __future__ import annotations

import itertools
import json
import time

import pytest
from acme_core_directives.parser import DirectiveParser, arguments_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.api import ParserContext, Reasoning, Text, ToolArguments, ToolEnd, ToolStart

LINES = [
    "@@think",
    "@@end",
    "@@call f",
    "@@call",
    "@@other",
    "@",
    "@@",
    "a: 1",
    'b: {"c": [2]}',
    "c: plain",
    "words",
    "",
]
messages = st.lists(st.sampled_from(LINES), max_size=12).map("\n".join)


def parse(*pieces, in_reasoning=False):
    parser = DirectiveParser(ParserContext(in_reasoning=in_reasoning))
    return joined([event for piece in pieces for event in parser.feed(piece)] + parser.finish())


def joined(events):
    """Merge neighbours of one kind, as a client does."""
    result = []
    for event in events:
        last = result[-1] if result else None
        if type(last) is type(event) and isinstance(event, (Text, Reasoning)):
            result[-1] = type(event)(last.text + event.text)
        elif isinstance(event, ToolArguments) and isinstance(last, ToolArguments):
            result[-1] = ToolArguments(event.index, last.json + event.json)
        else:
            result.append(event)
    return result


def call(index, name, arguments):
    return [ToolStart(index, name), ToolArguments(index, arguments), ToolEnd(index)]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("", []),
        ("Plain,\ntext @@ here.\n", [Text("Plain,\ntext @@ here.\n")]),
        ("@@call f\na: 1\n@@end", call(0, "f", '{"a": 1}')),
        ("@@call f\n@@end\n", call(0, "f", "{}")),
        ('Let me see.\n@@call f\na: "x"\nb: y z\n@@end\nDone.', [
            Text("Let me see."), *call(0, "f", '{"a": "x", "b": "y z"}'), Text("Done.")
        ]),
        ("@@call f\na: 1\n@@call g\na: 2\n@@end", [*call(0, "f", '{"a": 1}'), *call(1, "g", '{"a": 2}')]),
        ("@@call f\na: 1\na: 2", call(0, "f", '{"a": 1}')),
        ("@@call f\na: NaN\n\nb: [1\n", call(0, "f", '{"a": "NaN", "b": "[1"}')),
        ("@@call f\na: 1\nno argument\nmore", [*call(0, "f", '{"a": 1}'), Text("no argument\nmore")]),
        ("@@call\n@@end\n@@what", [Text("@@call\n@@end\n@@what")]),
        ("@@think\nSo.\n@@call f\n@@end\nYes.", [Reasoning("So."), *call(0, "f", "{}"), Text("Yes.")]),
        ("@", [Text("@")]),
        ("\n\n", [Text("\n\n")]),
    ],
)  # fmt: skip
def test_calls_reasoning_and_text(text, events):
    assert parse(text) == events
    assert parse(*text) == events


def test_a_prompt_that_opened_thinking():
    assert parse("Hm.\n@@end\nYes.", in_reasoning=True) == [Reasoning("Hm."), Text("Yes.")]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(text=messages, cuts=st.sets(st.integers(0, 60), max_size=5))
@example(text="a\n@@call f\na: 1", cuts={3, 4})
def test_any_split_gives_the_same_events(text, cuts):
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[begin:end] for begin, end in itertools.pairwise(places)]
    assert parse(*pieces) == parse(text) == parse(*text)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(text=messages)
def test_calls_are_counted_closed_and_valid(text):
    events = parse(text)
    starts = [event.index for event in events if isinstance(event, ToolStart)]
    assert starts == list(range(len(starts)))
    assert [event.index for event in events if isinstance(event, ToolEnd)] == starts
    for index in starts:
        assert isinstance(arguments_of(events, index), dict)


def test_prose_is_passed_on_while_it_arrives():
    parser = DirectiveParser(ParserContext())
    assert parser.feed("Hel") == [Text("Hel")]
    assert parser.feed("lo\n") == [Text("lo")]
    assert parser.feed("@") == []
    assert parser.feed("x") == [Text("\n@x")]


def test_a_megabyte_in_small_pieces_is_quick():
    text = "@@call f\n" + "a: " + "[" * 500_000
    began = time.perf_counter()
    events = parse(*(text[at : at + 50] for at in range(0, len(text), 50)))
    assert time.perf_counter() - began < 3
    assert json.loads(events[1].json) == {"a": "[" * 500_000}
