"""System text, turns and tools of the Messages API, as chat templates get them."""

from __future__ import annotations

import pytest
from core_plugin_anthropic.conversation import read_system, read_tools, read_turns

from core.api import RequestError


def use(name="get_weather", identifier="toolu_1", **arguments):
    return {"type": "tool_use", "id": identifier, "name": name, "input": arguments}


def text(words):
    return {"type": "text", "text": words}


def test_system_is_a_text_or_text_blocks():
    assert read_system(None) == read_system("") == read_system([]) == []
    assert read_system("Be brief.") == [{"role": "system", "content": "Be brief."}]
    blocks = [{**text("Be brief."), "cache_control": {"type": "ephemeral"}}, text("Rhyme.")]
    assert read_system(blocks) == [{"role": "system", "content": "Be brief.\nRhyme."}]


def test_turns_of_one_role_in_a_row_are_one_message():
    turns = [{"role": "user", "content": "One."}, {"role": "user", "content": [text("Two."), text("Three.")]}]
    assert read_turns(turns) == [{"role": "user", "content": "One.\nTwo.\nThree."}]


def test_a_system_turn_stays_where_it_is():
    turns = [{"role": "user", "content": "One."}, {"role": "system", "content": "Rhyme."}]
    assert read_turns(turns) == [{"role": "user", "content": "One."}, {"role": "system", "content": "Rhyme."}]


def test_calls_thinking_and_results():
    turns = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Look it up.", "signature": "x"},
                {"type": "redacted_thinking", "data": "zzz"},
                text("One moment."),
                use(city="Oslo"),
                use("search", "toolu_2", query="rain"),
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": [text("wet"), text("cold")]},
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no answer", "is_error": True},
                text("Well?"),
            ],
        },
    ]
    weather = {"name": "get_weather", "arguments": {"city": "Oslo"}}
    search = {"name": "search", "arguments": {"query": "rain"}}
    assert read_turns(turns)[1:] == [
        {
            "role": "assistant",
            "content": "One moment.",
            "reasoning": "Look it up.",
            "tool_calls": [
                {"id": "toolu_1", "type": "function", "function": weather},
                {"id": "toolu_2", "type": "function", "function": search},
            ],
        },
        {"role": "tool", "tool_call_id": "toolu_2", "name": "search", "content": "wet\ncold"},
        {"role": "tool", "tool_call_id": "toolu_1", "name": "get_weather", "content": "Error: no answer"},
        {"role": "user", "content": "Well?"},
    ]


def test_a_result_may_be_empty():
    turns = [
        {"role": "assistant", "content": [use()]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]},
    ]
    assert read_turns(turns)[1]["content"] == ""


@pytest.mark.parametrize(
    ("turn", "param"),
    [
        ({"role": "robot", "content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]"),
        ({"role": "user", "content": [text("a"), {"type": "image", "source": {}}]}, "messages[0].content[1]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [use()]}, "messages[0].content[0]"),
        ({"role": "assistant", "content": [{**use(), "input": "{}"}]}, "messages[0].content[0].input"),
        ({"role": "assistant", "content": [{**use(), "id": 3}]}, "messages[0].content[0].id"),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_9"}]},
            "messages[0].content[0].tool_use_id",
        ),
    ],
)
def test_the_block_at_fault_is_named(turn, param):
    with pytest.raises(RequestError) as caught:
        read_turns([turn])
    assert caught.value.status == 400
    assert caught.value.param == param


def test_tools():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    given = [{"name": "get_weather", "description": "Of a city.", "input_schema": schema, "strict": True}]
    function = {"name": "get_weather", "description": "Of a city.", "parameters": schema, "strict": True}
    assert read_tools(given) == [{"type": "function", "function": function}]
    assert read_tools(None) == []


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "web_search_20250305", "name": "web_search"}, "tools[0].type"),
        ({"name": "f"}, "tools[0].input_schema"),
        ({"name": "", "input_schema": {}}, "tools[0].name"),
        ({"input_schema": {}}, "tools[0].name"),
        ({"name": "f", "input_schema": {}, "description": 1}, "tools[0].description"),
    ],
)
def test_the_tool_at_fault_is_named(tool, param):
    with pytest.raises(RequestError) as caught:
        read_tools([tool])
    assert caught.value.param == param
