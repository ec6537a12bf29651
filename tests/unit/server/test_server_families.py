"""Answers of real model families over HTTP: the stream says what the whole answer says."""

from __future__ import annotations

import json
from importlib import import_module

import pytest

PATH = "/v1/chat/completions"
USER = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("get_weather", "search")]

FAMILIES = {
    "json": ("qwen3_json", "llama3_json", "mistral", "deepseek_v3", "kimi_k2", "granite", "cohere_command3"),
    "xml": ("qwen3_coder", "glm45", "minimax_m2", "deepseek_v32"),
    "python": ("pythonic", "gemma4", "olmo3"),
    "reasoning": ("openai", "qwen3"),
}


def family(package, name):
    specs = vars(import_module(f"core_plugin_parsers_{package}.manifest")).values()
    spec = next(one for one in specs if getattr(one, "name", None) == name)
    module, _, attribute = spec.impl.partition(":")
    return getattr(import_module(module), attribute)


def messages(package, name):
    samples = import_module(f"core_plugin_parsers_{package}.conformance").samples()
    return [sample for sample in samples if sample.plugin == name and not sample.in_reasoning and not sample.tools]


def streamed(api, body):
    """Do what a client does with deltas."""
    text = api.post(PATH, {**body, "stream": True}).text
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    choices = [json.loads(line)["choices"][0] for line in lines[:-1]]
    message, calls = {"content": "", "reasoning": ""}, {}
    for choice in choices:
        delta = choice["delta"]
        assert delta.get("reasoning") == delta.get("reasoning_content")
        for key in message:
            message[key] += delta.get(key) or ""
        for call in delta.get("tool_calls", ()):
            mine = calls.setdefault(call["index"], {"name": "", "arguments": "", "id": call.get("id")})
            mine["name"] += call["function"].get("name", "")
            mine["arguments"] += call["function"]["arguments"]
    return message, [calls[index] for index in sorted(calls)], choices[-1]["finish_reason"]


@pytest.mark.covers("TOOL-01", "TOOL-03", "REASON-01")
@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package, names in FAMILIES.items() for name in names]
)
def test_streams_agree_with_whole_answers(build, fake, package, name):
    for sample in messages(package, name):
        api = build(fake(reply=sample.text, max_model_len=4096), parser=family(package, name), tool_parser=name)
        body = {"messages": USER, "tools": TOOLS, "max_tokens": 2000}
        choice = api.post(PATH, body).json()["choices"][0]
        whole, (message, calls, reason) = choice["message"], streamed(api, body)
        assert message["content"] == (whole["content"] or ""), sample.name
        assert message["reasoning"] == whole.get("reasoning", "") == whole.get("reasoning_content", ""), sample.name
        known = whole.get("tool_calls", [])
        assert [(call["name"], call["arguments"]) for call in calls] == [
            (call["function"]["name"], call["function"]["arguments"]) for call in known
        ], sample.name
        assert reason == choice["finish_reason"] == ("tool_calls" if known else "stop"), sample.name
        assert len({call["id"] for call in calls}) == len(calls)


@pytest.mark.covers("REASON-02")
@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_thinking_in_the_history_reaches_the_template_under_both_names(build, fake, name):
    llm = fake(reply="ok")
    history = [*USER, {"role": "assistant", "content": "Yes.", name: "Hm."}, *USER]
    assert build(llm).post(PATH, {"messages": history}).status_code == 200
    rendered = llm.rendered[0]["messages"]
    assert (rendered[1]["reasoning"], rendered[1]["reasoning_content"]) == ("Hm.", "Hm.")


def test_a_call_of_a_tool_that_nobody_offered_is_text(build, fake):
    reply = '<think>Hm.</think>Look: <tool_call>{"name": "get_weather"}</tool_call>'
    api = build(fake(reply=reply), parser=family("json", "qwen3_json"), tool_parser="qwen3_json")
    message = api.post(PATH, {"messages": USER, "max_tokens": 99}).json()["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("Hm.", reply.removeprefix("<think>Hm.</think>"))


def test_thinking_that_is_no_text_is_refused(build, fake):
    history = [{"role": "assistant", "content": "Yes.", "reasoning": ["Hm."]}, *USER]
    answer = build(fake()).post(PATH, {"messages": history})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages[0].reasoning")
