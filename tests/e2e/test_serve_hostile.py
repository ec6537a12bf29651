"""Requests that mean harm, or nothing: each costs itself alone, and the client is told what is wrong with it."""

from __future__ import annotations

import json
import re
import signal
import threading
import time

import pytest

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
FLAGS = ("--threads", "1", "--dtype", "float32", "--num-blocks", "400", "--served-model-name", "scripted")
FLAGS += ("--tool-parser", "hermes", "--resume-seconds", "20", "--response-store", "8")
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
OPEN = {"type": "object"}


@pytest.fixture(scope="module")
def served(launch, scripted):
    checkpoint, plugin = scripted
    return launch(checkpoint, *FLAGS, PYTHONPATH=plugin).wait_ready()


@pytest.fixture
def http(served):
    with served.http() as http:
        yield http


@pytest.fixture(autouse=True)
def goes_on(served):
    """After every test the server answers, and nothing is left running."""
    yield
    if served.process.poll() is not None:
        return
    with served.http() as http:
        assert said(http, "still there").json()["choices"][0]["message"]["content"] == "still there"
        deadline = time.monotonic() + 10
        while (load := http.get("/load").json())["running"] or load["server_load"]:
            assert time.monotonic() < deadline, load
            time.sleep(0.05)


def said(http, text, **fields):
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 200, "temperature": 0, **fields}
    return http.post(CHAT, json=body)


def tool(parameters, **more):
    return {"type": "function", "function": {"name": "f", "parameters": parameters, **more}}


def schema(value):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}}


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize(
    "fields",
    [
        schema({"$ref": "#"}),
        schema({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
        schema({"anyOf": []}),
        schema({"type": []}),
        schema({"type": "string", "pattern": "(?=a)b"}),
        {"structured_outputs": {"regex": r"[^\s\S]"}},
        {"structured_outputs": {"regex": r"(?!a)b"}},
        {"structured_outputs": {"grammar": "root ::= root"}},
    ],
    ids=json.dumps,
)
def test_a_grammar_that_no_text_fits_is_refused_before_anything_runs(http, fields):
    answer = said(http, "x", **fields)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert "CORE-E160" in error["message"] and error["param"].startswith(next(iter(fields)))


@pytest.mark.covers("GRAM-01")
def test_a_grammar_beyond_the_limits_of_its_library_is_the_request_s_own_fault(http):
    answer = said(http, "x", structured_outputs={"grammar": 'root ::= "a" root'})
    if answer.status_code == 200:  # a library may follow it; then it never ends by itself
        assert answer.json()["choices"][0]["finish_reason"] == "length"
    else:
        assert answer.status_code == 400 and re.search("CORE-E16[02]", answer.json()["error"]["message"])


@pytest.mark.covers("TOOL-01")
@pytest.mark.parametrize("parameters", [5, "x", True, [], {"type": "string"}, {"type": 5}, {"properties": [1]}])
def test_a_tool_whose_arguments_are_no_object_is_refused(http, parameters):
    answer = said(http, CALL, tools=[tool(parameters)])
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "tools[0]", answer.text


@pytest.mark.covers("TOOL-01")
@pytest.mark.parametrize("parameters", [{"anyOf": [OPEN, {"type": "string"}]}, {"type": ["object", "null"]}, {}])
@pytest.mark.parametrize("fields", [{"tool_choice": "required"}, {}])
def test_arguments_of_enforced_calls_are_objects_whatever_else_the_schema_allows(http, parameters, fields):
    text = CALL if not fields else "string, no object"
    answer = said(http, text, tools=[tool(parameters, strict=True)], parallel_tool_calls=False, **fields).json()
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert isinstance(json.loads(call["function"]["arguments"]), dict)


def test_values_of_several_types_are_refused_in_words_for_all_of_them(http):
    error = said(http, "x", tool_choice=5).json()["error"]
    assert error["message"] == "tool_choice: Input should be a valid string or a valid object"


def test_a_penalty_that_no_logit_survives_is_refused(http):
    answer = said(http, "x", repetition_penalty=1e-308)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "repetition_penalty"


def test_an_anthropic_turn_without_blocks_is_refused(http):
    answer = http.post(MESSAGES, json={"max_tokens": 5, "messages": [{"role": "user", "content": []}]})
    assert answer.status_code == 400 and "messages[0].content" in answer.json()["error"]["message"]


@pytest.mark.covers("TOOL-01")
@pytest.mark.parametrize("stream", [False, True])
def test_one_call_is_one_call_in_anthropic_s_words_too(http, stream):
    body = {
        "max_tokens": 400,
        "messages": [{"role": "user", "content": CALL * 3}],
        "tools": [{"name": "f", "input_schema": OPEN}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "stream": stream,
    }
    answer = http.post(MESSAGES, json=body)
    if stream:
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        blocks = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
        reason = events[-2]["delta"]["stop_reason"]
    else:
        message = answer.json()
        blocks, reason = [block["type"] for block in message["content"]], message["stop_reason"]
        assert message["usage"]["output_tokens"] < 2 * len(CALL)  # what nobody will see is not generated
    assert blocks == ["tool_use"] and reason == "tool_use"


def test_an_anthropic_answer_that_was_ended_does_not_look_complete(http, served):
    found = []

    def ask():
        with served.http() as other:
            body = {"max_tokens": 7000, "messages": [{"role": "user", "content": "a long story " * 200}]}
            found.append(other.post(MESSAGES, json=body).json())

    asking = threading.Thread(target=ask)
    asking.start()
    while not http.get("/load").json()["running"]:
        time.sleep(0.01)
    http.post("/abort_requests", json={"abort_all": True})
    asking.join(30)
    assert found[0]["stop_reason"] == "pause_turn"


def test_many_streams_that_are_cut_leave_nothing_behind(served, http):
    def cut(number):
        with served.http() as other:
            headers = {"x-resumable-stream": "true"} if number % 2 else {}
            body = {"messages": [{"role": "user", "content": "x" * 500}], "max_tokens": 4000, "stream": True}
            with other.stream("POST", CHAT, json=body, headers=headers) as answer:
                next(answer.iter_raw())
                return answer.headers.get("x-stream-id")

    names: list = []
    threads = [threading.Thread(target=lambda n=n: names.append(cut(n))) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    kept = [name for name in names if name]
    assert len(names) == 16 and len(set(kept)) == 8
    for name in kept:
        assert http.delete(f"/v1/stream/{name}").status_code == 200


def test_a_pause_does_not_keep_a_server_from_ending(launch, scripted):
    checkpoint, plugin = scripted
    server = launch(checkpoint, *FLAGS, "--drain-timeout", "1", PYTHONPATH=plugin).wait_ready()
    answers: list = []

    def ask():
        with server.http() as other:
            answers.append(said(other, "held back").status_code)

    with server.http() as http:
        assert http.post("/pause", json={"mode": "keep"}).status_code == 200
        asking = threading.Thread(target=ask)
        asking.start()
        while not http.get("/load").json()["server_load"]:
            time.sleep(0.01)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    asking.join(10)
    assert answers == [503]
