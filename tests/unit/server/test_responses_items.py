"""Input items, the messages they become, and tools."""

import pytest
from core_plugin_openai.responses.conversation import to_messages
from core_plugin_openai.responses.items import parse_input
from core_plugin_openai.responses.tools import choose_tools

from core.api import RequestError

CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "3"}
THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
ADD = {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}, "strict": True}
MUL = {"type": "function", "name": "mul"}


def say(role, *texts):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"role": role, "content": [{"type": kind, "text": text} for text in texts]}


def messages(*items, instructions=None):
    return to_messages(instructions, parse_input(list(items)))


def test_a_text_is_a_message_of_the_user():
    (item,) = parse_input("Hi")
    assert (item["role"], item["content"]) == ("user", [{"type": "input_text", "text": "Hi"}])
    assert to_messages("Be brief.", [item]) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]


def test_a_turn_of_the_assistant_is_one_message():
    found = messages(say("user", "1+2?"), THOUGHT, say("assistant", "So:"), CALL, RESULT, say("assistant", "3"))
    assert found[1] == {
        "role": "assistant",
        "reasoning": "hm",
        "content": "So:",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}],
    }
    assert found[2] == {"role": "tool", "tool_call_id": "c1", "content": "3", "name": "add"}
    assert found[3] == {"role": "assistant", "content": "3"}


def test_calls_without_text_and_thoughts_without_anything():
    assert messages(CALL, {**CALL, "call_id": "c2"})[0]["content"] == ""
    assert len(messages(CALL, {**CALL, "call_id": "c2"})[0]["tool_calls"]) == 2
    assert messages(THOUGHT) == [{"role": "assistant", "reasoning": "hm", "content": ""}]
    assert messages({"type": "reasoning", "summary": [], "encrypted_content": "x"}, say("user", "Hi")) == [
        {"role": "user", "content": "Hi"}
    ]
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}]}
    assert messages(summary)[0]["reasoning"] == "short"


@pytest.mark.covers("API-01")
@pytest.mark.parametrize("nothing", [(), (None,), ([],), ("",)], ids=str)
def test_turns_and_results_without_text_have_an_empty_one(nothing):
    def item(kind, field):
        return {**kind, **dict(zip([field], nothing))}

    silent = item({"type": "message", "role": "assistant"}, "content")
    result = item({"type": "function_call_output", "call_id": "c1"}, "output")
    custom = item({"type": "custom_tool_call_output", "call_id": "c2"}, "output")
    found = messages(say("user", "1+2?"), THOUGHT, silent, CALL, {**CALL, "call_id": "c2", "id": None}, result, custom)
    assert [message["content"] for message in found] == ["1+2?", "", "", ""]
    assert [call["id"] for call in found[1]["tool_calls"]] == ["c1", "c2"] and found[1]["reasoning"] == "hm"


@pytest.mark.parametrize("broken", ["{", "[1]", "sum"])
def test_a_models_own_broken_call_may_be_sent_back(broken):
    (call,) = messages({**CALL, "arguments": broken}, RESULT)[0]["tool_calls"]
    assert call["function"]["arguments"] == broken


def test_two_turns_of_the_assistant_stay_two():
    assert [message["content"] for message in messages(say("assistant", "a"), say("assistant", "b"))] == ["a", "b"]
    assert len(messages(CALL, THOUGHT)) == 2


def test_parts_are_joined_and_system_messages_in_front_are_one():
    found = messages(
        say("developer", "a", "b"), say("system", "c"), say("user", "d"), say("system", "e"), instructions="i"
    )
    assert found == [
        {"role": "system", "content": "i\n\na\nb\n\nc"},
        {"role": "user", "content": "d"},
        {"role": "system", "content": "e"},
    ]


def test_refusals_are_text():
    item = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert messages(item)[0]["content"] == "No."


def test_ids_are_kept_or_made():
    first, second = parse_input([{**CALL, "id": "fc_mine"}, CALL])
    assert first["id"] == "fc_mine"
    assert second["id"].startswith("fc_")


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_file"}]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_text", "text": 3}]}, "input[0].content[0].text"),
        ({"role": "user", "content": [7]}, "input[0].content[0]"),
        ({"content": "x"}, "input[0].type"),
        ({"type": ["message"]}, "input[0].type"),
        ({"type": "web_search_call"}, "input[0].type"),
        ({"type": "item_reference", "id": "x"}, "input[0]"),
        ({**CALL, "name": ""}, "input[0].name"),
        ({**CALL, "call_id": None}, "input[0].call_id"),
        ({**CALL, "arguments": {"a": 1}}, "input[0].arguments"),
        ({**RESULT, "output": 3}, "input[0].output"),
        ({"role": "user", "content": None}, "input[0].content"),
        ({**RESULT, "output": [{"type": "input_image"}]}, "input[0].output[0]"),
        ({"type": "reasoning", "content": "x"}, "input[0].content"),
        ({"type": "reasoning", "summary": [{"text": 1}]}, "input[0].summary[0].text"),
    ],
)
def test_what_cannot_be_read_is_refused_where_it_stands(item, param):
    with pytest.raises(RequestError) as refused:
        parse_input([item])
    assert (refused.value.status, refused.value.param) == (400, param)


def test_input_is_needed():
    with pytest.raises(RequestError) as refused:
        parse_input(None)
    assert refused.value.param == "input"


def test_functions_are_offered():
    tools = choose_tools([ADD, MUL], None)
    assert tools.offered[0] == {
        "type": "function",
        "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}, "strict": True},
    }
    assert tools.listed[1] == {
        "type": "function",
        "name": "mul",
        "description": None,
        "parameters": None,
        "strict": None,
    }
    assert tools.choice.mode == "auto"


@pytest.mark.parametrize(
    ("choice", "mode", "name", "offered"),
    [
        ("auto", "auto", None, ["add", "mul"]),
        ("required", "required", None, ["add", "mul"]),
        ("none", "none", None, ["add", "mul"]),
        ({"type": "function", "name": "mul"}, "function", "mul", ["add", "mul"]),
        ({"type": "allowed_tools", "mode": "auto", "tools": [MUL]}, "auto", None, ["mul"]),
        ({"type": "allowed_tools", "mode": "required", "tools": [ADD]}, "required", None, ["add"]),
    ],
)
def test_choices(choice, mode, name, offered):
    tools = choose_tools([ADD, MUL], choice)
    assert (tools.choice.mode, tools.choice.name) == (mode, name)
    assert [tool["function"]["name"] for tool in tools.offered] == offered
    assert tools.given == choice


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ("any", "tool_choice"),
        ({"type": "mcp", "server_label": "x"}, "tool_choice"),
        ({"type": 3}, "tool_choice"),
        ({"type": "function", "name": "sub"}, "tool_choice.name"),
        ({"type": "allowed_tools", "mode": "none", "tools": []}, "tool_choice.mode"),
        ({"type": "allowed_tools", "mode": "auto", "tools": [3]}, "tool_choice.tools"),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"name": "sub"}]}, "tool_choice.tools[0].name"),
    ],
)
def test_choices_that_are_none(choice, param):
    with pytest.raises(RequestError) as refused:
        choose_tools([ADD], choice)
    assert refused.value.param == param


@pytest.mark.parametrize("kind", ["mcp", "web_search", "file_search", "code_interpreter", "local_shell"])
def test_tools_that_others_run_are_refused_with_a_sentence(kind):
    with pytest.raises(RequestError) as refused:
        choose_tools([ADD, {"type": kind, "server_label": "x", "server_url": "http://x"}], None)
    assert (refused.value.param, refused.value.code) == ("tools[1].type", "unsupported_tool")
    assert kind in refused.value.message
    if kind == "mcp":
        assert "--mcp-server" in refused.value.message


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({}, "tools[0].type"),
        ({"type": "function"}, "tools[0].name"),
        ({"type": "function", "name": "x" * 300}, "tools[0].name"),
        ({**ADD, "parameters": []}, "tools[0].parameters"),
        ({**ADD, "description": 3}, "tools[0].description"),
        ({**ADD, "strict": "yes"}, "tools[0].strict"),
    ],
)
def test_functions_that_are_none(tool, param):
    with pytest.raises(RequestError) as refused:
        choose_tools([tool], None)
    assert refused.value.param == param
