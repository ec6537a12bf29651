"""Every reasoning parser in front of every tool parser: calls behind the thinking, and in it."""

from __future__ import annotations

import json
from importlib import import_module

import pytest

from core.api import ParserContext, Reasoning, Text, ToolArguments, ToolParserSpec, ToolStart
from core.frontend.answering.parsing import answer_parser
from core_testing.conformance.tools.messages import joined

TAGS = {
    "qwen3": ("<think>", "</think>"),
    "deepseek_r1": ("<think>", "</think>"),
    "mistral": ("[THINK]", "[/THINK]"),
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "minimax_m3": ("<mm:think>", "</mm:think>"),
    "granite": ("Here is my thought process:", "Here is my response:"),
    "gemma4": ("<|channel>thought", "<channel|>"),
    "kimi": ("◁think▷", "◁/think▷"),
    "openai": ("<|channel|>analysis<|message|>", "<|end|>"),
}
ARGUMENTS = {"city": "Paris", "more": "a < b"}
BARE = {"pythonic", "xlam"}
"""Families whose calls are nothing but the whole message."""


def plugins():
    specs, writers = {}, {}
    for kind in ("json", "xml", "python", "reasoning"):
        for spec in vars(import_module(f"core_plugin_parsers_{kind}.manifest")).values():
            if isinstance(spec, ToolParserSpec):
                module, _, attribute = spec.impl.partition(":")
                specs[spec.name] = (spec, getattr(import_module(module), attribute))
        writers |= getattr(import_module(f"core_plugin_parsers_{kind}.conformance"), "WRITERS", {})
    return specs, writers


SPECS, WRITERS = plugins()


def events_of(parser, pieces):
    machine = parser.make(ParserContext())
    return joined([event for piece in pieces for event in machine.feed(piece)] + machine.finish())


def pairs(reasoning):
    for name, write in WRITERS.items():
        if name != reasoning:
            yield name, write([("get_weather", ARGUMENTS)]), answer_parser([SPECS[name], SPECS[reasoning]], name)


def require_call(events, name):
    assert [event.name for event in events if isinstance(event, ToolStart)] == ["get_weather"], (name, events)
    assert json.loads("".join(e.json for e in events if isinstance(e, ToolArguments))) == ARGUMENTS, (name, events)


@pytest.mark.covers("REASON-01", "TOOL-01")
@pytest.mark.parametrize("reasoning", TAGS)
def test_thinking_then_a_call(reasoning):
    """Also where a delta ends the thinking and begins the call."""
    opens, closes = TAGS[reasoning]
    for name, call, parser in pairs(reasoning):
        text = f"{opens}\nHm.\n{closes}\n\n{call}"
        cut = text.index(closes) + 2
        for pieces in (
            [text],
            list(text),
            [text[:cut], text[cut : cut + len(closes) + 6], text[cut + len(closes) + 6 :]],
        ):
            events = events_of(parser, pieces)
            assert events[0] == Reasoning("Hm."), (name, pieces[:3])
            require_call(events, name)
            assert not any(isinstance(event, Text) for event in events), (name, events)


@pytest.mark.covers("REASON-01", "TOOL-01")
@pytest.mark.parametrize("reasoning", TAGS)
def test_a_call_ends_the_thinking(reasoning):
    """Whether or not the thinking's own end comes behind the call."""
    opens, closes = TAGS[reasoning]
    for name, call, parser in pairs(reasoning):
        if name in BARE:
            continue
        for text, said in ((f"{opens}\nHm.\n{call}", []), (f"{opens}\nHm.\n{call}\n{closes}\nYes.", [Text("Yes.")])):
            whole = events_of(parser, [text])
            assert whole[0] == Reasoning("Hm."), (name, whole)
            require_call(whole, name)
            assert [event for event in whole if isinstance(event, Text | Reasoning)][1:] == said, (name, whole)
            assert events_of(parser, list(text)) == whole, name


@pytest.mark.covers("REASON-01", "TOOL-01")
@pytest.mark.parametrize(
    ("reasoning", "tools"), [("qwen3", "qwen3_coder"), ("qwen3", "qwen3_json"), ("kimi", "gemma4")]
)
def test_a_call_in_the_thinking_cut_anywhere(reasoning, tools):
    opens, closes = TAGS[reasoning]
    call, parser = WRITERS[tools]([("get_weather", ARGUMENTS)]), answer_parser([SPECS[tools], SPECS[reasoning]], tools)
    tag = call.partition("get_weather")[0].strip()
    for text in (f"{opens}\nHm.\n{call}\n{closes}\nYes.", f"{opens}Is it {tag} or not?{closes}\nYes.\n{call}"):
        whole = events_of(parser, [text])
        require_call(whole, tools)
        for cut in range(1, len(text)):
            assert events_of(parser, [text[:cut], text[cut:]]) == whole, text[:cut]


@pytest.mark.covers("REASON-01")
def test_a_tag_in_the_thinking_is_thought():
    one = SPECS["qwen3_coder"]
    thought = "Is it <tool_call> or <function=f>, with <tool_call></tool_call> around?"
    text = f"<think>{thought}</think>Yes."
    for parser in (answer_parser([one], one[0].name), answer_parser([one, SPECS["qwen3"]], one[0].name)):
        assert events_of(parser, [text]) == events_of(parser, list(text)) == [Reasoning(thought), Text("Yes.")]
