"""Tools: the template sees them, a parser turns text into calls, streams and whole answers agree."""

import json

import pytest

from core.frontend.answering.parsing import AnswerParser

PATH = "/v1/chat/completions"
USER = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


def stream(api, body):
    text = api.post(PATH, {**body, "stream": True}).text
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [json.loads(line)["choices"][0] for line in lines[:-1]]


def fold(choices):
    """Do what a client does with deltas."""
    message, calls = {"content": "", "reasoning": ""}, {}
    for choice in choices:
        delta = choice["delta"]
        message["content"] += delta.get("content", "")
        message["reasoning"] += delta.get("reasoning", "")
        for call in delta.get("tool_calls", ()):
            mine = calls.setdefault(call["index"], {"name": "", "arguments": ""})
            mine["name"] += call["function"].get("name", "")
            mine["arguments"] += call["function"]["arguments"]
            mine.setdefault("id", call.get("id"))
    return message, [calls[index] for index in sorted(calls)]


REPLY = '(hm)ok<add:{"a":1}><add:{"b":2}>'


@pytest.mark.covers("API-01")
def test_calls_and_reasoning(build, fake, parser):
    api = build(fake(reply=REPLY), parser=parser, tool_parser="brackets")
    choice = api.post(PATH, {"messages": USER, "tools": TOOLS, "max_tokens": 99}).json()["choices"][0]
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls"
    assert (message["content"], message["reasoning"]) == ("ok", "hm")
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "add", "arguments": '{"a":1}'},
        {"name": "add", "arguments": '{"b":2}'},
    ]
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    assert {call["type"] for call in message["tool_calls"]} == {"function"}
    assert list(parser.contexts[0].tools) == TOOLS


@pytest.mark.parametrize("reply", [REPLY, "plain", "<add:{}>", "(only thought)", "ends in <ad", "a<add:{}>b"])
def test_streams_agree_with_whole_answers(build, fake, parser, reply):
    api = build(fake(reply=reply), parser=parser, tool_parser="brackets")
    body = {"messages": USER, "tools": TOOLS, "max_tokens": 99}
    whole = api.post(PATH, body).json()["choices"][0]
    pieces = stream(api, body)
    message, calls = fold(pieces)
    assert message["content"] == (whole["message"]["content"] or "")
    assert message["reasoning"] == whole["message"].get("reasoning", "")
    known = whole["message"].get("tool_calls", [])
    assert [{k: call[k] for k in ("name", "arguments")} for call in calls] == [call["function"] for call in known]
    assert all(call["id"] for call in calls)
    assert pieces[-1]["finish_reason"] == whole["finish_reason"]


def test_a_cut_call_ends_by_length(build, fake, parser):
    api = build(fake(reply=REPLY), parser=parser, tool_parser="brackets")
    choice = api.post(PATH, {"messages": USER, "tools": TOOLS, "max_tokens": 12}).json()["choices"][0]
    assert choice["finish_reason"] == "length"


def test_the_prompt_may_open_the_thought(build, fake, parser):
    api = build(fake(reply="deep)yes"), parser=parser, tool_parser="brackets")
    messages = [{"role": "user", "content": "Hi<think>\n"}]
    message = api.post(PATH, {"messages": messages}).json()["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("deep", "yes")


def test_tools_reach_the_template_without_a_parser(build, fake):
    llm = fake(reply="<add:{}>")
    choice = build(llm).post(PATH, {"messages": USER, "tools": TOOLS, "tool_choice": "auto"}).json()["choices"][0]
    assert llm.rendered[0]["tools"] == TOOLS
    assert choice["message"]["content"] == "<add:{}>"
    assert choice["finish_reason"] == "stop"


def test_no_tools_when_none_may_be_called(build, fake, parser):
    llm = fake(reply="plain")
    build(llm, parser=parser).post(PATH, {"messages": USER, "tools": TOOLS, "tool_choice": "none"})
    assert llm.rendered[0]["tools"] is None
    assert list(parser.contexts[0].tools) == []


@pytest.mark.parametrize("offer", [{}, {"tools": TOOLS, "tool_choice": "none"}])
def test_a_call_that_nobody_offered_stays_text(build, fake, parser, offer):
    api = build(fake(reply='(hm)so <add:{"a":1}>'), parser=parser)
    choice = api.post(PATH, {"messages": USER, "max_tokens": 99, **offer}).json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"] == {
        "role": "assistant",
        "content": 'so {"name": "add", "arguments": {"a":1}}',
        "reasoning": "hm",
        "reasoning_content": "hm",
    }


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}}])
def test_without_grammars_calls_cannot_be_enforced(build, llm, parser, choice):
    for api in (build(llm), build(llm, parser=parser, tool_parser="brackets")):
        response = api.post(PATH, {"messages": USER, "tools": TOOLS, "tool_choice": choice})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "tool_choice"


def test_official_client_reads_calls(live, fake, parser, monkeypatch):
    import openai

    with live(fake(reply=REPLY)) as server:
        server.state.parser = AnswerParser(parser)
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", _strict_response_validation=True) as client:
            answer = client.chat.completions.create(
                model=server.llm.model_name, messages=USER, tools=TOOLS, max_completion_tokens=99
            )
            assert answer.choices[0].message.tool_calls[1].function.arguments == '{"b":2}'
            with client.chat.completions.stream(
                model=server.llm.model_name, messages=USER, tools=TOOLS, max_completion_tokens=99
            ) as events:
                final = events.get_final_completion()
            assert [call.function.name for call in final.choices[0].message.tool_calls] == ["add", "add"]


@pytest.mark.covers("TOOL-01")
@pytest.mark.parametrize("stream", [False, True])
def test_a_demanded_call_is_a_grammar_and_is_read_by_its_parser(fake, stream, app_of, options):
    """Through the API: the engine is asked for the grammar, and the answer becomes a call."""
    from core_plugin_parsers_json.families import HUNYUAN
    from core_plugin_parsers_json.manifest import HUNYUAN_A13B
    from starlette.testclient import TestClient

    from core.frontend.answering.parsing import answer_parser

    llm = fake(reply='<tool_calls>[{"name": "add", "arguments": {"a":1}}]</tool_calls>', grammars=True)
    parser = answer_parser([(HUNYUAN_A13B, HUNYUAN)], "hunyuan_a13b")
    api = TestClient(app_of(llm, options(), parser=parser))
    body = {"messages": USER, "tools": TOOLS, "tool_choice": "required", "chat_template_kwargs": {"thinking": False}}
    if stream:
        _, calls = fold(stream_of(api, body))
        assert [(call["name"], call["arguments"]) for call in calls] == [("add", '{"a":1}')]
    else:
        (call,) = api.post(PATH, json=body).json()["choices"][0]["message"]["tool_calls"]
        assert call["function"] == {"name": "add", "arguments": '{"a":1}'}
    grammar = llm.requests[0]["params"].grammar
    assert (grammar.kind, grammar.param, grammar.thinking) == ("structural_tag", "tool_choice", None)
    refused = api.post(PATH, json={**body, "response_format": {"type": "json_object"}})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tool_choice")


def stream_of(api, body):
    text = api.post(PATH, json={**body, "stream": True}).text
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [json.loads(line)["choices"][0] for line in lines[:-1]]
