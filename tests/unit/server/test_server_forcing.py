"""Calls that are demanded become grammars, and what reads the answers follows."""

from __future__ import annotations

import json

import pytest
from core_plugin_parsers_json.families import KIMI_K2
from core_plugin_parsers_json.manifest import KIMI_K2 as KIMI_SPEC
from core_plugin_parsers_python.families import PYTHONIC
from core_plugin_parsers_python.manifest import PYTHONIC as PYTHONIC_SPEC
from core_plugin_parsers_reasoning.families import THINK_FIRST
from core_plugin_parsers_reasoning.manifest import DEEPSEEK_R1

from core.api import ParserContext, Reasoning, RequestError, ToolArguments, ToolStart
from core.api.grammars import Grammar
from core.api.sampling_params import SamplingParams
from core.api.serving import ToolChoice
from core.frontend.answering.forcing import enforced
from core.frontend.answering.parsing import answer_parser, calls_before
from core.frontend.conversation import Conversation

USER = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def tool(name, **more):
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA, **more}}


BOTH = (tool("f"), tool("g"))


def ask(parser, mode="auto", name=None, tools=BOTH, params=None, grammars=None, **more):
    chat = Conversation(messages=[USER], tools=tools, tool_choice=ToolChoice(mode, name), **more)
    context = ParserContext(tools, in_reasoning=False)
    return enforced(chat, params or SamplingParams(), parser, context, grammars=grammars)


KIMI = answer_parser([(KIMI_SPEC, KIMI_K2)], "kimi_k2")


def grammar_of(parser, *asked, **more):
    return ask(parser, *asked, **more)[0].grammar


@pytest.mark.covers("TOOL-01")
def test_what_may_be_called_how_often():
    every = grammar_of(KIMI, "required")
    assert (every.kind, every.param) == ("structural_tag", "tool_choice")
    assert "functions.f:" in every.value and "functions.g:" in every.value and '"star"' in every.value
    named = grammar_of(KIMI, "function", "g")
    assert "functions.f:" not in named.value and '"star"' not in named.value
    assert '"star"' not in grammar_of(KIMI, "required", parallel_tool_calls=False).value
    assert grammar_of(KIMI, "auto") is None and grammar_of(KIMI, "none") is None


def test_the_thinking_is_free():
    thinking = grammar_of(KIMI, "required").thinking
    assert (thinking.end, thinking.start, thinking.open) == ("</think>", "<think>", False)
    staged = answer_parser([(KIMI_SPEC, KIMI_K2), (DEEPSEEK_R1, THINK_FIRST)], "kimi_k2")
    assert grammar_of(staged, "required").thinking.open  # as the parser that reads it knows
    assert grammar_of(answer_parser([(PYTHONIC_SPEC, PYTHONIC)], "pythonic"), "required").thinking is None


@pytest.mark.covers("TOOL-01", "REASON-01")
@pytest.mark.parametrize("chosen", [[], [(DEEPSEEK_R1, THINK_FIRST)]], ids=["alone", "staged"])
def test_a_list_is_read_where_the_family_has_no_form_that_grammars_know(chosen):
    parser = answer_parser([(PYTHONIC_SPEC, PYTHONIC), *chosen], "pythonic")
    params, made = ask(parser, "required")
    assert json.loads(params.grammar.value)["format"]["elements"][0]["value"].startswith("[")
    thought = "Hm.</think>\n" if chosen else ""
    machine = made.make(ParserContext((tool("f"),)))
    text = f'{thought}[{{"name": "f", "parameters": {{"city": "Oslo"}}}}]'
    found = [event for letter in text for event in machine.feed(letter)] + machine.finish()
    assert "".join(event.text for event in found if isinstance(event, Reasoning)) == ("Hm." if chosen else "")
    assert [event.name for event in found if isinstance(event, ToolStart)] == ["f"]
    assert "".join(event.json for event in found if isinstance(event, ToolArguments)) == '{"city": "Oslo"}'


@pytest.mark.parametrize("parser", [None, KIMI], ids=["plain", "kimi"])
def test_two_forms_of_one_answer_are_refused(parser):
    params = SamplingParams(grammar=Grammar("json_object", param="response_format"))
    with pytest.raises(RequestError, match="response_format") as caught:
        ask(parser, "required", params=params)
    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize("parser", [None, KIMI], ids=["plain", "kimi"])
def test_a_server_without_grammars_enforces_nothing(parser):
    with pytest.raises(RequestError, match="--structured-output") as caught:
        ask(parser, "required", grammars=frozenset())
    assert caught.value.param == "tool_choice"


@pytest.mark.covers("TOOL-01")
def test_strict_tools():
    tools = (tool("f", strict=True), tool("g"))
    grammar = grammar_of(KIMI, tools=tools)
    (tag,) = json.loads(grammar.value)["format"]["tags"]
    schemas = json.dumps(tag)
    assert grammar.param == "tools" and schemas.count('"city"') > 0 and '{"type": "object"}' in schemas
    assert grammar_of(KIMI, tools=tools, grammars=frozenset({"json_schema"})) is None  # then it is only better with one
    assert grammar_of(answer_parser([(PYTHONIC_SPEC, PYTHONIC)], "pythonic"), tools=tools) is None
    own = SamplingParams(grammar=Grammar("json_object"))
    assert grammar_of(KIMI, tools=tools, params=own) is own.grammar


@pytest.mark.covers("TOOL-03")
def test_ids_count_the_calls_of_the_conversation():
    messages = [USER, {"role": "assistant", "tool_calls": [{}, {}]}, {"role": "assistant", "tool_calls": None}]
    assert calls_before(messages) == 2
    assert [KIMI.id_of("f", calls_before(messages) + index) for index in range(3)] == [
        "functions.f:2",
        "functions.f:3",
        "functions.f:4",
    ]
