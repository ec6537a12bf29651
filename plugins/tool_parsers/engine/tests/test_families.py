"""Every family over its whole corpus: any split, one token at a time, what breaks off, and what is asked for."""

from __future__ import annotations

import json
import random
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.api import ParserContext, Reasoning, Text, ToolArguments, ToolEnd, ToolParserSpec, ToolStart
from core.api.parsers import ParseEvent
from core_testing.conformance import ParserSample

PACKAGES = ("json", "xml", "python", "reasoning")


def specs(package: str) -> list[ToolParserSpec]:
    found = vars(import_module(f"core_plugin_parsers_{package}.manifest")).values()
    return [one for one in found if isinstance(one, ToolParserSpec)]


FAMILIES = {spec.name: (package, spec) for package in PACKAGES for spec in specs(package)}


def family(name: str) -> Any:
    _, spec = FAMILIES[name]
    module, _, attribute = spec.impl.partition(":")
    return getattr(import_module(module), attribute)


def corpus(name: str) -> list[ParserSample]:
    samples = import_module(f"core_plugin_parsers_{FAMILIES[name][0]}.conformance").samples()
    return [sample for sample in samples if sample.plugin == name]


def joined(events: list[ParseEvent]) -> list[ParseEvent]:
    result: list[ParseEvent] = []
    for event in events:
        last = result[-1] if result else None
        if isinstance(event, (Text, Reasoning)) and isinstance(last, type(event)):
            result[-1] = type(event)(last.text + event.text)
        elif isinstance(event, ToolArguments) and isinstance(last, ToolArguments) and last.index == event.index:
            result[-1] = ToolArguments(event.index, last.json + event.json)
        else:
            result.append(event)
    return result


def parse(name: str, pieces: list[str], **context: Any) -> list[ParseEvent]:
    parser = family(name)(ParserContext(**context))
    events = [event for piece in pieces for event in parser.feed(piece)]
    return joined([*events, *parser.finish()])


def of(sample: ParserSample) -> dict[str, Any]:
    return {"tools": sample.tools, "in_reasoning": sample.in_reasoning}


@pytest.mark.covers("TOOL-01")
@pytest.mark.parametrize("name", FAMILIES)
def test_every_message_gives_its_events_however_it_is_cut(name: str) -> None:
    samples = corpus(name)
    assert len(samples) >= 3
    for sample in samples:
        assert parse(name, [sample.text], **of(sample)) == list(sample.events), sample.name
        assert parse(name, list(sample.text), **of(sample)) == list(sample.events), sample.name


@pytest.mark.covers("REASON-01", "TOOL-01")
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_messages_run_together_and_cut_at_random_give_the_same_events(data: st.DataObject) -> None:
    """Also for what no model should write: ends of one message and beginnings of another."""
    name = data.draw(st.sampled_from(sorted(FAMILIES)))
    texts = [sample.text for sample in corpus(name)]
    pieces = [
        text[data.draw(st.integers(0, 3)) : len(text) - data.draw(st.integers(0, 9))]
        for text in data.draw(st.lists(st.sampled_from(texts), min_size=1, max_size=3))
    ]
    text = "".join(pieces)
    whole = parse(name, [text])
    rng = random.Random(data.draw(st.integers(0, 999)))
    cuts = sorted(rng.sample(range(len(text) + 1), min(len(text), 12)))
    assert parse(name, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]) == whole
    assert_well_formed(whole)


def assert_well_formed(events: list[ParseEvent]) -> None:
    open_call, count = None, 0
    for event in events:
        if isinstance(event, ToolStart):
            assert open_call is None and event.index == count and event.name
            open_call, count, arguments = event.index, count + 1, ""
        elif isinstance(event, ToolArguments):
            assert event.index == open_call
            arguments += event.json
        elif isinstance(event, ToolEnd):
            assert event.index == open_call and isinstance(json.loads(arguments), dict)
            open_call = None
        else:
            assert open_call is None and event.text
    assert open_call is None


@pytest.mark.covers("TOOL-02")
def test_several_calls_in_one_delta_end_only_their_own() -> None:
    """A delta may close one call and open the next one."""
    first = "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n"
    second = "</function>\n</tool_call>\n<tool_call>\n<function=g>\n<parameter=b>\n'y'\n"
    found = parse("step3p5", [first, second])
    assert found == [
        ToolStart(0, "f"),
        ToolArguments(0, '{"a": "x"}'),
        ToolEnd(0),
        ToolStart(1, "g"),
        ToolArguments(1, '{"b": "\'y\'"}'),
        ToolEnd(1),
    ]


@pytest.mark.parametrize("name", [name for name, (_, spec) in FAMILIES.items() if len(spec.reads) == 2])
def test_what_is_not_asked_for_is_text(name: str) -> None:
    for sample in corpus(name):
        text = parse(name, [sample.text], reads=frozenset())
        assert text == [Text(sample.text)], sample.name
        tools = parse(name, [sample.text], tools=sample.tools, reads=frozenset({"tools"}))
        assert not any(isinstance(event, Reasoning) for event in tools), sample.name
        reasoning = parse(name, [sample.text], **of(sample), reads=frozenset({"reasoning"}))
        assert not any(isinstance(event, ToolStart) for event in reasoning), sample.name
