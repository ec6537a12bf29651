"""Every reasoning parser in front of every tool parser: a delta that ends the thinking and begins a call is split."""

from __future__ import annotations

import json
from importlib import import_module

import pytest

from core.api import ParserContext, Reasoning, Text, ToolArguments, ToolParserSpec, ToolStart
from core.frontend.answering.parsing import answer_parser
from core.testing.conformance.tools.messages import joined

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


@pytest.mark.covers("REASON-01", "TOOL-01")
@pytest.mark.parametrize("reasoning", TAGS)
def test_thinking_then_a_call(reasoning):
    opens, closes = TAGS[reasoning]
    for name, write in WRITERS.items():
        if name == reasoning:
            continue
        parser = answer_parser([SPECS[name], SPECS[reasoning]], name)
        call = write([("get_weather", ARGUMENTS)])
        text = f"{opens}\nHm.\n{closes}\n\n{call}"
        cut = text.index(closes) + 2
        for pieces in (
            [text],
            list(text),
            [text[:cut], text[cut : cut + len(closes) + 6], text[cut + len(closes) + 6 :]],
        ):
            machine = parser.make(ParserContext())
            events = joined([event for piece in pieces for event in machine.feed(piece)] + machine.finish())
            assert events[0] == Reasoning("Hm."), (name, pieces[:3])
            assert [event.name for event in events if isinstance(event, ToolStart)] == ["get_weather"], (name, events)
            assert json.loads("".join(e.json for e in events if isinstance(e, ToolArguments))) == ARGUMENTS
            assert not any(isinstance(event, Text) for event in events), (name, events)
