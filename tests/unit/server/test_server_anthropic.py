"""The Messages API over a scripted model, by hand and by Anthropic's own client."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from core.api.parsers import Text, ToolArguments, ToolEnd, ToolStart

PATH = "/v1/messages"
HI = [{"role": "user", "content": "Hi"}]
TOOLS = [{"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]


class Calls:
    """Reads a call at each `</call>`."""

    def __init__(self, context):
        self.text, self.count = "", -1

    def feed(self, text, token_ids=()):
        self.text += text
        if not self.text.endswith("</call>"):
            return []
        self.text, self.count = "", self.count + 1
        return [ToolStart(self.count, "get_weather"), ToolArguments(self.count, "{}"), ToolEnd(self.count)]

    def finish(self):
        return [Text(self.text)] if self.text else []


def body(**fields):
    return {"max_tokens": 300, "messages": HI, **fields}


def events(api, **fields):
    answer = api.post(PATH, body(stream=True, **fields))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = []
    for block in answer.text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


@pytest.mark.covers("API-01")
def test_a_message(build, fake):
    llm = fake(reply="Hello", cached=3)
    message = build(llm).post(PATH, body(system="Be brief.")).json()
    identifier = message.pop("id")
    assert identifier.startswith("msg")
    prompt = len(llm.requests[0]["ids"])
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "acme/tiny",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": prompt - 3,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 3,
            "output_tokens": 5,
        },
    }
    assert llm.rendered[0]["messages"][0] == {"role": "system", "content": "Be brief."}


def test_a_stream_has_its_events_in_order(build, fake):
    found = events(build(fake(reply="Hey")))
    kinds = [event["type"] for event in found]
    assert kinds == [
        "message_start",
        "ping",
        "content_block_start",
        *["content_block_delta"] * 3,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert found[0]["message"]["content"] == [] and found[0]["message"]["usage"]["output_tokens"] == 0
    assert found[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert found[-2]["usage"]["output_tokens"] == 3


def test_sampling_fields_reach_the_engine(build, fake):
    llm = fake()
    sent = body(temperature=0.5, top_p=0.25, top_k=7, seed=3, stop_sequences=["END"], cache_salt="me", priority=2)
    assert build(llm).post(PATH, sent).status_code == 200
    asked = llm.requests[0]
    params = asked["params"]
    assert (params.temperature, params.top_p, params.top_k, params.seed) == (0.5, 0.25, 7, 3)
    assert (params.max_tokens, list(params.stop)) == (300, ["END"])
    assert (asked["priority"], asked["salt"]) == (2, "me")


def test_a_limit_beyond_the_models_length_is_lowered_and_said(build, fake):
    llm = fake(reply="x" * 600, max_model_len=100)
    message = build(llm).post(PATH, body(max_tokens=32000)).json()
    assert llm.requests[0]["params"].max_tokens == 100 - len(llm.requests[0]["ids"])
    assert message["stop_reason"] == "model_context_window_exceeded"
    short = build(fake(reply="x" * 60)).post(PATH, body(max_tokens=5)).json()
    assert short["stop_reason"] == "max_tokens"


def test_the_assistants_last_turn_is_continued(build, fake):
    llm = fake(reply=" two")
    build(llm).post(PATH, body(messages=[*HI, {"role": "assistant", "content": "One,"}]))
    assert llm.rendered[0]["continue_final_message"] is True
    assert llm.rendered[0]["add_generation_prompt"] is False


def test_thinking_and_effort_are_told_to_the_template(build, fake):
    llm = fake()
    api = build(llm)
    sent = body(thinking={"type": "enabled", "budget_tokens": 1024}, output_config={"effort": "low"})
    answer = api.post(PATH, sent)
    assert answer.headers["x-core-ignored-fields"] == "thinking.budget_tokens"
    api.post(PATH, body(thinking={"type": "disabled"}))
    assert (llm.rendered[0]["enable_thinking"], llm.rendered[0]["reasoning_effort"]) == (True, "low")
    assert llm.rendered[1]["enable_thinking"] is False


def test_an_output_format_becomes_a_grammar(build, fake):
    llm = fake(grammars=True)
    schema = {"type": "object"}
    build(llm).post(PATH, body(output_config={"format": {"type": "json_schema", "schema": schema}}))
    grammar = llm.requests[0]["params"].grammar
    assert (grammar.kind, json.loads(grammar.value)) == ("json_schema", schema)


def test_ignored_fields_are_named(build, fake):
    answer = build(fake()).post(PATH, body(metadata={"user_id": "me"}, service_tier="auto", nonsense=1))
    assert answer.headers["x-core-ignored-fields"] == "nonsense,service_tier"


def test_counting(build, fake):
    llm = fake()
    answer = build(llm).post(f"{PATH}/count_tokens", {"messages": HI, "system": "Be brief."})
    assert answer.json() == {"input_tokens": len("[system]Be brief.[user]Hi") + 1}
    assert llm.requests == []


@pytest.mark.covers("API-04")
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"messages": []}, "messages"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": -1.0}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "search"}}, "tool_choice"),
        ({"thinking": {"type": "perhaps"}}, "thinking.type"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0]"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ],
)
def test_the_field_at_fault_is_named(build, fake, fields, named):
    llm = fake()
    answer = build(llm).post(PATH, body(**fields))
    assert answer.status_code == 400
    said = answer.json()
    assert said["type"] == "error" and said["error"]["type"] == "invalid_request_error"
    assert named in said["error"]["message"]
    assert llm.requests == []


def test_errors_are_said_in_anthropics_words(build, fake):
    assert build(fake()).post(PATH, body(model="gpt-9")).json()["error"]["type"] == "not_found_error"
    locked = build(fake(), api_key="secret")
    refused = locked.post(PATH, body())
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
    assert locked.post(PATH, body(), headers={"x-api-key": "secret"}).status_code == 200
    down = build(fake(healthy=False)).post(PATH, body())
    assert (down.status_code, down.json()["error"]["type"]) == (529, "overloaded_error")
    broken = build(fake(row_error="boom")).post(PATH, body())
    assert (broken.status_code, broken.json()["error"]["type"]) == (500, "api_error")
    wrong = build(fake()).get(PATH)
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (405, "invalid_request_error")


def test_a_stream_that_breaks_off_ends_with_an_error_event(build, fake):
    last = events(build(fake(reply="Hello", row_error="boom")))[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "api_error")


def test_one_call_ends_the_message_and_the_generation(build, fake):
    calls = '<call>{"name": "get_weather", "arguments": {}}</call>'
    llm = fake(reply=calls * 2)
    api = build(llm, parser=Calls, tool_parser="calls")
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    message = api.post(PATH, body(tools=TOOLS, tool_choice=choice)).json()
    assert [block["type"] for block in message["content"]] == ["tool_use"]
    assert message["stop_reason"] == "tool_use" and llm.aborted
    assert message["usage"]["output_tokens"] == len(calls)


def test_what_an_operator_ended_is_no_end_of_turn(build, fake):
    class Ended(type(fake())):
        def _output(self, index, reply, step, limit, params):
            output = super()._output(index, reply, step, limit, params)
            return output if output.finish_reason is None else replace(output, finish_reason="abort")

    assert build(Ended(reply="Half an")).post(PATH, body()).json()["stop_reason"] == "pause_turn"
