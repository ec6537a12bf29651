"""Demanded calls on a server without a tool parser: plain JSON, read back into calls by every API."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from core.api.parsers import ParserContext, Reasoning, Text, ThinkingTags, ToolArguments, ToolEnd, ToolStart
from core.frontend.answering.partial_json import PartialObject
from core.frontend.answering.plain_calls import PlainCallsReader, plain_calls

USER = [{"role": "user", "content": "Hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
FUNCTIONS = [{"name": "add", "parameters": SCHEMA}, {"name": 'say "x"'}]
TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]
HARD = {'t"}': 'a"b\\c\n{[é\U0001f600', "n": [-1.5e3, 12, True, None, {}, [], {"x": {"y": "z"}}], "last": 7}
OBJECTS = [
    json.dumps(HARD),
    json.dumps(HARD, ensure_ascii=False, indent=2),
    "{}",
    '{"a":1}',
    ' {"a" : "\\ud83d\\ude00"}',
]


@pytest.mark.parametrize("text", OBJECTS)
def test_an_object_of_any_grain_is_the_object_and_can_end_anywhere(text):
    for grain in (1, 2, 3, 7, len(text)):
        read, passed = PartialObject(), ""
        for start in range(0, len(text), grain):
            more, rest = read.feed(text[start : start + grain])
            passed += more
            assert not rest
            assert isinstance(json.loads(passed + read.closing()), dict)
        assert read.done and passed == text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_what_was_passed_on_is_what_the_library_reads_of_it(value, escaped, indent):
    """At every letter of any object: complete, nothing is taken back, and only a word or number that grows waits."""
    text = json.dumps(value, ensure_ascii=escaped, indent=indent)
    read, passed = PartialObject(), ""
    for place, letter in enumerate(text, 1):
        passed += read.feed(letter)[0]
        assert text.startswith(passed)
        closed = json.loads(passed + read.closing())
        assert closed == from_json(passed or "{", allow_partial="trailing-strings")
        if text[place - 1] in '",:{}[]':
            assert closed == from_json(text[:place], allow_partial="trailing-strings")
    assert read.done and passed == text


@pytest.mark.parametrize(("text", "library"), [('{"a": 12', {"a": 12}), ('{"a": 12.', {}), ('{"a": 12.5', {"a": 12.5})])
def test_the_library_takes_back_what_it_read_of_a_number(text, library):
    """Why it does not take the class's place: a client cannot be sent what is no longer there at the next letter."""
    assert from_json(text, allow_partial="trailing-strings") == library
    read = PartialObject()
    passed, _ = read.feed(text)
    assert json.loads(passed + read.closing()) == {}


def test_what_stands_behind_the_object_is_not_its_own():
    assert PartialObject().feed('{"a": {}}, {"b"') == ('{"a": {}}', ', {"b"')


@pytest.mark.parametrize(
    ("text", "read"),
    [('"\\ud83dx"', "\ufffdx"), ('"\\ud83d\\n"', "\ufffd\n"), ('"\\udc00"', "\ufffd"), ('"\\ud83d\\u0041"', "\ufffdA")],
)
def test_half_characters_do_not_get_through(text, read):
    found = PartialObject()
    passed = "".join(found.feed(letter)[0] for letter in f'{{"a": {text}}}')
    assert found.done and json.loads(passed) == {"a": read}


def read(reader, text, grain):
    pieces = [text[start : start + grain] for start in range(0, len(text), grain)]
    events = [event for piece in pieces for event in reader.feed(piece)] + reader.finish()
    calls: dict = {}
    for event in events:
        if isinstance(event, ToolStart):
            calls[event.index] = [event.name, ""]
        elif isinstance(event, ToolArguments):
            calls[event.index][1] += event.json
    assert sum(isinstance(event, ToolEnd) for event in events) == len(calls)
    return [(name, json.loads(text)) for name, text in calls.values()], events


LISTED = '[{"name": "add", "parameters": {"a": 1}}, {"name": "say \\"x\\"", "parameters": {}}]'


@pytest.mark.covers("TOOL-01", "TOOL-02")
@pytest.mark.parametrize("grain", [1, 4, 1000])
def test_lists_and_arguments_become_calls(grain):
    assert read(PlainCallsReader(), LISTED, grain)[0] == [("add", {"a": 1}), ('say "x"', {})]
    assert read(PlainCallsReader("add"), json.dumps(HARD) + "\n", grain)[0] == [("add", HARD)]
    for end in range(len(LISTED)):  # wherever the tokens run out
        assert len(read(PlainCallsReader(), LISTED[:end], grain)[0]) <= 2
    calls, events = read(PlainCallsReader(), "I would rather not.", grain)
    assert calls == [] and events == [Text("I would rather not.")]


@pytest.mark.covers("TOOL-01")
def test_the_form_is_a_grammar_with_the_schema_of_each_tool():
    many = plain_calls(TOOLS, many=True, named=False)
    first, either, star, last = json.loads(many.value)["format"]["elements"]
    assert (many.kind, first["value"], last["value"]) == ("structural_tag", "[", "]") and star["type"] == "star"
    heads = [one["elements"][0]["value"] for one in either["elements"]]
    assert heads == ['{"name": "add", "parameters": ', '{"name": "say \\"x\\"", "parameters": ']
    assert either["elements"][0]["elements"][1]["json_schema"] == SCHEMA  # references stay where they point to
    assert either["elements"][1]["elements"][1]["json_schema"] == {"type": "object"}
    assert "star" not in plain_calls(TOOLS, many=False, named=False).value
    named = plain_calls(TOOLS[:1], many=False, named=True)
    assert (named.kind, json.loads(named.value)) == ("json_schema", SCHEMA)


NAMED = {"type": "function", "function": {"name": "add"}}


def deltas(answer):
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    return [json.loads(line)["choices"][0] for line in lines if line != "[DONE]"]


@pytest.mark.covers("TOOL-01", "API-01")
@pytest.mark.parametrize(
    ("choice", "reply", "kind"), [("required", LISTED, "structural_tag"), (NAMED, '{"a": 1}', "json_schema")]
)
def test_chat_whole_and_streamed(build, fake, choice, reply, kind):
    llm = fake(reply=reply, grammars=True)
    llm.template_variables = frozenset()  # whose template shows no tools
    api, body = build(llm), {"messages": USER, "tools": TOOLS, "tool_choice": choice}
    answer = api.post("/v1/chat/completions", body)
    assert "x-core-ignored-fields" not in answer.headers
    (whole,) = answer.json()["choices"]
    grammar = llm.requests[0]["params"].grammar
    assert (grammar.kind, grammar.param) == (kind, "tool_choice")
    first, *more = whole["message"]["tool_calls"]
    assert (first["type"], first["function"]) == ("function", {"name": "add", "arguments": '{"a": 1}'})
    assert len(more) == (choice == "required") and whole["finish_reason"] == "tool_calls"
    assert whole["message"]["content"] is None
    pieces = deltas(api.post("/v1/chat/completions", {**body, "stream": True}))
    calls = [call for piece in pieces for call in piece["delta"].get("tool_calls", ())]
    text = "".join(call["function"]["arguments"] for call in calls if call["index"] == 0)
    assert text == '{"a": 1}' and len(calls) > 1  # as they come, not at the end
    assert pieces[-1]["finish_reason"] == "tool_calls"


@pytest.mark.covers("TOOL-01", "API-01")
@pytest.mark.parametrize("stream", [False, True])
def test_responses_and_messages(build, fake, stream):
    api = build(fake(reply='{"a": 1}', grammars=True))
    tools = [{"type": "function", **FUNCTIONS[0]}]
    body = {"input": "Hi", "tools": tools, "tool_choice": {"type": "function", "name": "add"}, "stream": stream}
    answer = api.post("/v1/responses", body)
    assert answer.status_code == 200, answer.text
    if stream:
        assert '"type":"response.function_call_arguments.done"' in answer.text.replace(" ", "")
    else:
        (call,) = answer.json()["output"]
        assert (call["type"], call["name"], call["arguments"]) == ("function_call", "add", '{"a": 1}')
    tools = [{"name": "add", "input_schema": SCHEMA}]
    body = {"messages": USER, "max_tokens": 99, "tools": tools, "stream": stream}
    answer = api.post("/v1/messages", {**body, "tool_choice": {"type": "tool", "name": "add"}})
    assert answer.status_code == 200, answer.text
    if stream:
        assert '"input_json_delta"' in answer.text and '"stop_reason":"tool_use"' in answer.text
    else:
        (block,) = answer.json()["content"]
        assert (block["name"], block["input"], answer.json()["stop_reason"]) == ("add", {"a": 1}, "tool_use")


@pytest.mark.covers("TOOL-01", "API-01")
def test_messages_with_any_tool(build, fake):
    api = build(fake(reply=LISTED.replace('say \\"x\\"', "add"), grammars=True))
    tools = [{"name": "add", "input_schema": SCHEMA}]
    body = {"messages": USER, "max_tokens": 200, "tools": tools, "tool_choice": {"type": "any"}}
    answer = api.post("/v1/messages", body).json()
    assert [block["input"] for block in answer["content"]] == [{"a": 1}, {}]
    cut = api.post("/v1/messages", {**body, "max_tokens": 35}).json()
    assert cut["stop_reason"] == "max_tokens" and cut["content"][0]["input"] == {}


def test_without_structured_output_the_choice_is_at_fault(build, fake):
    refused = build(fake()).post("/v1/chat/completions", {"messages": USER, "tools": TOOLS, "tool_choice": "required"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tool_choice")


@pytest.mark.covers("TOOL-01", "REASON-01")
def test_thinking_comes_first_where_a_reasoning_parser_knows_it():
    from core_plugin_parsers_reasoning.families import THINK_FIRST
    from core_plugin_parsers_reasoning.manifest import DEEPSEEK_R1

    from core.frontend.answering.parsing import answer_parser

    parser = answer_parser([(DEEPSEEK_R1, THINK_FIRST)], None)
    context = ParserContext(TOOLS)
    found = parser.rules.forced(context, TOOLS[:1], many=False, named=True)
    assert isinstance(found.thinking, ThinkingTags) and found.thinking.open
    calls, events = read(found.make(context), 'Hm, {"b": 2}.</think>\n{"a": 1}', 3)
    assert calls == [("add", {"a": 1})]
    assert "".join(event.text for event in events if isinstance(event, Reasoning)).strip() == 'Hm, {"b": 2}.'
