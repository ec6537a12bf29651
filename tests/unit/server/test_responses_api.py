"""`/v1/responses` in memory: fields, refusals, tools, whole answers and streams."""

import json

import pytest
from core_plugin_openai.responses.protocol import ResponsesBody
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.input_token_count_response import InputTokenCountResponse

from core.api.errors import RequestError

PATH = "/v1/responses"
ADD = {"type": "function", "name": "add", "parameters": {"type": "object"}}
REPLY = '(hm)ok<add:{"a":1}><add:{"b":2}>'
LOGPROBS = {"include": ["message.output_text.logprobs"]}


def events_of(answer):
    """Read a stream as a client does."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = []
    for block in answer.text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def text_of(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def same(response):
    """Return a response without what differs from request to request."""
    changing = ("id", "created_at", "completed_at")
    items = [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in response["output"]]
    return {**{k: v for k, v in response.items() if k not in changing}, "output": items}


@pytest.fixture
def ask(strict):
    """Send a body whole and streamed; check both, that they agree, and return the response."""

    def ask(api, body, extra=()):
        whole = api.post(PATH, body)
        assert whole.status_code == 200, whole.text
        response = whole.json()
        strict(Response, {name: value for name, value in response.items() if name not in extra})
        streamed = events_of(api.post(PATH, {**body, "stream": True}))
        assert same(streamed[-1]["response"]) == same(response)
        return response

    return ask


@pytest.mark.covers("API-01")
def test_a_text(llm, api, ask):
    llm.cached = 2
    response = ask(api, {"input": "Hi", "instructions": "Be brief.", "model": llm.model_name})
    assert text_of(response) == "Hello"
    assert (response["status"], response["error"], response["incomplete_details"]) == ("completed", None, None)
    assert response["instructions"] == "Be brief."
    assert response["usage"] == {
        "input_tokens": 1 + len("[system]Be brief.[user]Hi"),
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 6 + len("[system]Be brief.[user]Hi"),
    }
    assert llm.requests[0]["params"].max_tokens is None


@pytest.mark.covers("API-01")
def test_the_events_of_a_text(api, strict):
    events = events_of(api.post(PATH, {"input": "Hi", "stream": True}))
    for event in events:
        strict(ResponseStreamEvent, event)
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * 5,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert events[0]["response"]["status"] == "in_progress"
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1


def test_an_answer_that_is_cut_off(api, ask, strict):
    response = ask(api, {"input": "Hi", "max_output_tokens": 3})
    assert (response["status"], text_of(response)) == ("incomplete", "Hel")
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][0]["status"] == "incomplete"
    last = events_of(api.post(PATH, {"input": "Hi", "max_output_tokens": 3, "stream": True}))[-1]
    assert last["type"] == "response.incomplete"
    strict(ResponseStreamEvent, last)


@pytest.mark.covers("API-03")
def test_sampling_fields_arrive(llm, api):
    fields = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "seed": -(2**63),
        "ignore_eos": True,
        "min_tokens": 1,
        "stop_token_ids": [3],
        "bad_words": ["x"],
        "skip_special_tokens": False,
        "include_stop_str_in_output": True,
    }
    response = api.post(PATH, {"input": "Hi", "stop": "\n", "max_output_tokens": 9, **fields}).json()
    params = llm.requests[0]["params"]
    assert {name: getattr(params, name) for name in fields} == fields
    assert (params.stop, params.max_tokens) == (["\n"], 9)
    assert (response["temperature"], response["top_p"], response["max_output_tokens"]) == (0.5, 0.9, 9)
    api.post(PATH, {"input": "Hi", "stop": ["a", "b"], "priority": 3, "cache_salt": "s"})
    assert llm.requests[1]["params"].stop == ["a", "b"]
    assert (llm.requests[1]["priority"], llm.requests[1]["salt"]) == (3, "s")


@pytest.mark.covers("API-03")
def test_what_a_request_leaves_out_comes_from_the_model(llm, build):
    api = build(llm, defaults={"temperature": 0.3, "top_k": 20, "repetition_penalty": 1.1})
    response = api.post(PATH, {"input": "Hi", "top_k": 5}).json()
    params = llm.requests[0]["params"]
    assert (params.temperature, params.top_k, params.repetition_penalty, params.seed) == (0.3, 5, 1.1, None)
    assert response["temperature"] == 0.3


@pytest.mark.covers("API-03")
def test_xargs_become_extra_args(llm, api):
    given = {"name": "x", "count": 3, "share": 0.5, "list": [1, 2.5, "z"]}
    assert api.post(PATH, {"input": "Hi", "vllm_xargs": given}).status_code == 200
    assert llm.requests[0]["params"].extra_args == given


@pytest.mark.covers("API-03", "API-04")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"seed": 2**63}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"stop": [3]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": ""}, "stop"),
        ({"vllm_xargs": {"a": {"b": 1}}}, "vllm_xargs.a"),
        ({"vllm_xargs": {"a": True}}, "vllm_xargs.a"),
        ({"vllm_xargs": 3}, "vllm_xargs"),
        ({"vllm_xargs": {str(n): n for n in range(65)}}, "vllm_xargs"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 5, "min_tokens": 6}, "min_tokens"),
        ({"max_tool_calls": 0}, "max_tool_calls"),
        ({"top_logprobs": 999}, "top_logprobs"),
        ({"top_logprobs": -1}, "top_logprobs"),
        ({"include": ["everything"]}, "include[0]"),
        ({"reasoning": {"effort": "heroic"}}, "reasoning.effort"),
        ({"truncation": "middle"}, "truncation"),
        ({"metadata": {"a": 3}}, "metadata.a"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options"),
        ({"prompt": {"id": "x"}}, "prompt"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"n": 2}, "n"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"background": True}, "background"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0].type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
    ],
)
def test_bad_fields_are_refused_by_name(llm, api, fields, param):
    answer = api.post(PATH, {"input": "Hi", **fields})
    assert answer.status_code == (404 if param == "previous_response_id" else 400), answer.text
    assert answer.json()["error"]["param"] == param
    assert llm.requests == []


def test_a_prompt_that_is_too_long(llm, api):
    answer = api.post(PATH, {"input": "x" * 600, "stream": True})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "input")


def test_what_the_engine_refuses_has_a_status_and_our_names(llm, api):
    llm.fail_at, llm.failure = 0, RequestError("max_tokens is too large", param="max_tokens")
    for stream in (False, True):
        answer = api.post(PATH, {"input": "Hi", "stream": stream})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "max_output_tokens")


def test_unknown_fields_are_named(api):
    answer = api.post(PATH, {"input": "Hi", "frobnicate": 1})
    assert answer.headers["x-core-ignored-fields"] == "frobnicate"


def test_a_stream_that_breaks_ends_with_failed(llm, api, strict, engine_error):
    llm.fail_at, llm.failure = 2, engine_error
    events = events_of(api.post(PATH, {"input": "Hi", "stream": True}))
    last = strict(ResponseStreamEvent, events[-1])
    assert (last.type, last.response.status, last.response.error.code) == ("response.failed", "failed", "server_error")
    assert "/opt" not in last.response.error.message
    assert last.response.output[0].content[0].text == "He"
    assert last.response.output[0].status == "incomplete"
    assert api.post(PATH, {"input": "Hi"}).status_code == 503


def test_an_engine_that_ends_a_request(llm, api):
    llm.row_error = "broken"
    assert api.post(PATH, {"input": "Hi"}).status_code == 500


def test_log_probabilities(api, ask, strict):
    response = ask(api, {"input": "Hi", "top_logprobs": 2, **LOGPROBS})
    scores = response["output"][0]["content"][0]["logprobs"]
    assert [entry["token"] for entry in scores] == list("Hello")
    assert [len(entry["top_logprobs"]) for entry in scores] == [2] * 5
    for event in events_of(api.post(PATH, {"input": "Hi", "stream": True, "top_logprobs": 2, **LOGPROBS})):
        if event["type"] == "response.output_text.delta":
            assert [entry["token"] for entry in event["logprobs"]] == [event["delta"]]
            for entry in event["logprobs"]:
                for top in entry["top_logprobs"]:
                    del top["bytes"]  # more than the client's type of this event says
                del entry["bytes"]
            strict(ResponseStreamEvent, event)
    plain = ask(api, {"input": "Hi", **LOGPROBS})["output"][0]["content"][0]["logprobs"]
    assert [entry["top_logprobs"] for entry in plain] == [[]] * 5
    assert ask(api, {"input": "Hi"})["output"][0]["content"][0]["logprobs"] == []


@pytest.mark.covers("API-02")
def test_tokens_of_log_probabilities_as_ids(llm, build, fake, ask):
    body = {"input": "Hi", "top_logprobs": 1, **LOGPROBS}

    def tokens(api, **fields):
        return [entry["token"] for entry in ask(api, {**body, **fields})["output"][0]["content"][0]["logprobs"]]

    names = [f"token_id:{token}" for token in b"Hello"]
    asked, always = build(llm), build(fake(), return_tokens_as_token_ids=True)
    assert tokens(asked, return_tokens_as_token_ids=True) == names == tokens(always)
    assert tokens(asked) == list("Hello") == tokens(always, return_tokens_as_token_ids=False)


def test_token_ids(api, ask):
    response = ask(api, {"input": "Hi", "return_token_ids": True}, extra=("token_ids", "prompt_token_ids"))
    assert bytes(response["token_ids"]) == b"Hello"
    assert bytes(response["prompt_token_ids"][1:]) == b"[user]Hi"
    events = events_of(api.post(PATH, {"input": "Hi", "return_token_ids": True, "stream": True}))
    assert bytes(token for event in events for token in event.get("token_ids", [])) == b"Hello"


def test_fields_that_are_repeated(api, ask):
    fields = {
        "metadata": {"a": "b"},
        "user": "me",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "max_tool_calls": 3,
        "parallel_tool_calls": False,
        "truncation": "auto",
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tool_choice": "none",
        "top_logprobs": 0,
    }
    response = ask(api, {"input": "Hi", "tools": [ADD], "service_tier": "flex", **fields})
    assert {name: response[name] for name in fields} == fields
    assert response["tools"] == [{**ADD, "description": None, "strict": None}]
    assert response["service_tier"] == "default"
    assert response["background"] is False


def test_the_template_hears_how_much_to_think(llm, api):
    api.post(PATH, {"input": "Hi", "reasoning": {"effort": "none"}})
    api.post(PATH, {"input": "Hi", "reasoning": {"effort": "high"}, "chat_template_kwargs": {"thinking": "x"}})
    api.post(PATH, {"input": "Hi"})
    first, second, third = llm.rendered
    assert (first["reasoning_effort"], first["enable_thinking"], first["thinking"]) == ("none", False, False)
    assert (second["reasoning_effort"], second["enable_thinking"], second["thinking"]) == ("high", True, "x")
    assert not {"reasoning_effort", "enable_thinking", "thinking"} & third.keys()


def test_what_the_text_must_look_like(llm, api, ask):
    llm.grammars = True
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "name": "x", "schema": schema, "strict": True}
    response = ask(api, {"input": "Hi", "text": {"format": form}})
    assert response["text"]["format"] == form
    ask(api, {"input": "Hi", "text": {"format": {"type": "json_object"}}})
    ask(api, {"input": "Hi", "text": {"format": {"type": "text"}}})
    asked = [request["params"].grammar for request in llm.requests[::2]]
    assert (asked[0].kind, json.loads(asked[0].value)) == ("json_schema", schema)
    assert asked[1].kind == "json_object"
    assert asked[2] is None


def test_a_schema_that_nobody_can_follow(llm, api):
    for form, param in (
        ({"type": "json_object"}, "text.format"),
        ({"type": "json_schema", "name": "x", "schema": {"type": "object"}}, "text.format.schema"),
    ):
        answer = api.post(PATH, {"input": "Hi", "text": {"format": form}})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.fixture
def tools(build, fake, parser):
    return build(fake(reply=REPLY), parser=parser, tool_parser="brackets")


def test_thinking_and_calls(tools, ask, strict):
    response = ask(tools, {"input": "Hi", "tools": [ADD]})
    thought, text, *calls = response["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert text["content"][0]["text"] == "ok"
    assert [(call["name"], call["arguments"]) for call in calls] == [("add", '{"a":1}'), ("add", '{"b":2}')]
    assert 2 <= response["usage"]["output_tokens_details"]["reasoning_tokens"] <= 4
    for event in events_of(tools.post(PATH, {"input": "Hi", "tools": [ADD], "stream": True})):
        strict(ResponseStreamEvent, event)


@pytest.mark.parametrize("fields", [{"parallel_tool_calls": False}, {"max_tool_calls": 1}])
def test_the_answer_is_over_after_the_last_call(tools, ask, fields):
    response = ask(tools, {"input": "Hi", "tools": [ADD], **fields})
    assert [item["type"] for item in response["output"]] == ["reasoning", "message", "function_call"]
    assert response["status"] == "completed"
    assert response["usage"]["output_tokens"] == REPLY.index(">") + 1


def test_calls_that_nobody_offered_are_text(tools, ask):
    for body in ({}, {"tools": [ADD], "tool_choice": "none"}):
        response = ask(tools, {"input": "Hi", **body})
        assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
        assert '"a":1' in text_of(response)


def test_an_answer_can_be_sent_back(tools, ask):
    first = ask(tools, {"input": "Hi", "tools": [ADD]})
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "3"}
        for item in first["output"]
        if item["type"] == "function_call"
    ]
    back = [{"role": "user", "content": "Hi"}, *first["output"], *results]
    assert tools.post(PATH, {"input": back, "tools": [ADD]}).status_code == 200


def test_calls_that_are_sent_back_reach_the_template(llm, api):
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 1}'}
    api.post(PATH, {"input": [call, {"type": "function_call_output", "call_id": "c", "output": "3"}], "tools": [ADD]})
    (rendered,) = llm.rendered
    assistant, tool = rendered["messages"]
    assert assistant["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    assert (tool["role"], tool["content"], tool["tool_call_id"]) == ("tool", "3", "c")
    assert rendered["tools"][0]["function"]["name"] == "add"


def test_old_turns_are_dropped_when_asked(llm, api):
    turns = [{"role": role, "content": f"{number}" * 100} for number in range(6) for role in ("user", "assistant")]
    body = {"input": [*turns, {"role": "user", "content": "last"}], "instructions": "Be brief."}
    assert api.post(PATH, body).json()["error"]["code"] == "context_length_exceeded"
    assert api.post(PATH, {**body, "truncation": "auto", "max_output_tokens": 5}).status_code == 200
    kept = llm.rendered[-1]["messages"]
    assert kept[0]["content"] == "Be brief."
    assert (kept[1]["role"], kept[-1]["content"]) == ("user", "last")
    assert len(llm.requests[0]["ids"]) + 5 <= llm.max_model_len
    assert len(kept) == 6  # one more turn would not have fitted
    too_long = api.post(PATH, {"input": "x" * 600, "truncation": "auto"}).json()
    assert too_long["error"]["code"] == "context_length_exceeded"


def test_input_tokens(api, llm, strict):
    answer = api.post(f"{PATH}/input_tokens", {"input": "Hi", "instructions": "Be brief."}).json()
    assert strict(InputTokenCountResponse, answer).input_tokens == 1 + len("[system]Be brief.[user]Hi")
    assert llm.requests == []


@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")]
)
def test_nothing_is_kept_unless_the_server_was_told_to(api, method, path):
    made = api.post(PATH, {"input": "Hi"}).json()["id"]
    answer = api.request(method, f"{PATH}/{made}{path}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "response_not_found")


def test_a_server_that_drains_takes_no_more(api):
    api.app.state.core.lifecycle.draining = True
    assert api.post(PATH, {"input": "Hi"}).status_code == 503
    assert api.post(PATH, {"input": "Hi", "stream": True}).status_code == 503


SIMPLE = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
WORDS = ["message", "function_call", "function_call_output", "reasoning", "function", "input_text", "user", "{}"]
KEYS = ["type", "role", "content", "text", "name", "call_id", "arguments", "output", "summary", "id", "format"]
VALUES = st.recursive(
    SIMPLE | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)
ITEM = st.fixed_dictionaries(
    {"type": st.sampled_from(WORDS), "content": VALUES | st.text(max_size=5)},
    optional={
        key: VALUES | st.text(min_size=1, max_size=5) for key in ("role", "name", "call_id", "arguments", "output")
    },
)
FIELDS = st.sampled_from(sorted(ResponsesBody.model_fields.keys() - {"model", "input"}))


@pytest.mark.covers("API-04")
@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    given_input=st.just("Hi") | VALUES | st.lists(ITEM, max_size=4), fields=st.dictionaries(FIELDS, VALUES, max_size=3)
)
def test_whatever_is_sent_is_answered_or_refused(api, given_input, fields):
    answer = api.post(PATH, {**fields, "input": given_input})
    assert answer.status_code in (200, 400, 404)
    if answer.status_code != 200:
        assert answer.json()["error"]["message"]
