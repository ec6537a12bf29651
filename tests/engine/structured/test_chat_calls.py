"""`LLM.chat` with tools: demanded calls are enforced and read, with and without a parser."""

from __future__ import annotations

import json

import pytest

from core import LLM, SamplingParams
from core.api.errors import RequestError
from core_testing.tinymodels import tiny_llama

TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"
TEMPLATE += "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}"
CITY = {"type": "object", "properties": {"city": {"enum": ["Ulm", "Bonn"]}}, "required": ["city"]}
CITY["additionalProperties"] = False
EMPTY = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": CITY}},
    {"type": "function", "function": {"name": "now", "parameters": EMPTY}},
]
USER = [{"role": "user", "content": "the engine"}]
PARAMS = SamplingParams(temperature=0.0, max_tokens=80)
NOW = {"type": "function", "function": {"name": "now"}}


@pytest.fixture(scope="module", params=[None, "hermes"])
def llm(request, tmp_path_factory):
    path = tiny_llama(tmp_path_factory.mktemp("calls") / "llama")
    named = {} if request.param is None else {"tool_parser": request.param, "reasoning_parser": "qwen3"}
    with LLM(str(path), dtype="float32", num_blocks=64, chat_template=TEMPLATE, **named) as made:
        yield made


def calls_of(output):
    message = output.outputs[0].message
    assert message["role"] == "assistant" and message["content"] is None
    return [(one["function"]["name"], json.loads(one["function"]["arguments"])) for one in message["tool_calls"]]


def test_demanded_calls(llm):
    answers = llm.chat([USER, USER], PARAMS, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    for answer in answers:
        ((name, arguments),) = calls_of(answer)
        assert arguments.get("city") in ("Ulm", "Bonn") if name == "weather" else arguments == {}
    (named,) = llm.chat(USER, PARAMS, tools=TOOLS, tool_choice=NOW)
    assert calls_of(named) == [("now", {})]
    ids = [one["id"] for answer in answers for one in answer.outputs[0].message["tool_calls"]]
    assert len(set(ids)) == 2


def test_the_message_can_be_sent_back(llm):
    (first,) = llm.chat(USER, PARAMS, tools=TOOLS, tool_choice=NOW)
    said = first.outputs[0].message
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "noon"}
    (second,) = llm.chat([*USER, said, result], PARAMS, tools=TOOLS)
    assert second.outputs[0].message["role"] == "assistant" and "noon" in second.prompt


def test_free_answers_and_those_that_call_nothing(llm):
    few = SamplingParams(temperature=0.0, max_tokens=8)
    for named in ({}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "none"}):
        output = llm.chat(USER, few, **named)[0].outputs[0]
        message = output.message
        said = message["content"] + message.get("reasoning", "")
        assert said.strip() == output.text.strip() and "tool_calls" not in message
    assert llm.generate("the engine", few)[0].outputs[0].message is None


def test_a_call_beside_another_form_is_refused(llm):
    grammar = SamplingParams(max_tokens=8, grammar={"regex": "a"})
    with pytest.raises(RequestError) as caught:
        llm.chat(USER, grammar, tools=TOOLS, tool_choice="required")
    assert caught.value.param == "tool_choice"
