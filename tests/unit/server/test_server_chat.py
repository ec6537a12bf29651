"""Chat completions: whole and streamed answers, and what they share."""

import json

import pytest

PATH = "/v1/chat/completions"
USER = [{"role": "user", "content": "Hi"}]


def events(response):
    lines = [line for line in response.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_whole_answer(api, llm):
    body = api.post(PATH, {"model": llm.model_name, "messages": USER}).json()
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    choice = body["choices"][0]
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "Hello"},
        "logprobs": None,
        "finish_reason": "stop",
        "stop_reason": None,
    }
    prompt = len(llm.requests[0]["ids"])
    assert body["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": 5,
        "total_tokens": prompt + 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_stream_grammar(api):
    response = api.post(PATH, {"messages": USER, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    chunks = events(response)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 5 + ["stop"]
    assert all("usage" not in chunk for chunk in chunks)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("top", [None, 0, 2])
def test_stream_says_what_the_whole_answer_says(build, fake, n, top):
    api = build(fake(reply=["one", "second", "3"]))
    request = {"messages": USER, "n": n, "return_token_ids": True}
    if top is not None:
        request |= {"logprobs": True, "top_logprobs": top}
    whole = api.post(PATH, request).json()
    chunks = events(api.post(PATH, {**request, "stream": True, "stream_options": {"include_usage": True}}))
    for choice in whole["choices"]:
        mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
        assert "".join(c["delta"].get("content", "") for c in mine) == choice["message"]["content"]
        assert [token for c in mine for token in c.get("token_ids", ())] == choice["token_ids"]
        assert mine[-1]["finish_reason"] == choice["finish_reason"]
        scores = [entry for c in mine if c["logprobs"] for entry in c["logprobs"]["content"]]
        assert scores == (choice["logprobs"]["content"] if top is not None else [])
    assert chunks[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[-1]["choices"] == []
    assert len(whole["choices"]) == n


def test_usage_in_streams(build, fake):
    api = build(fake(cached=2))
    stream = {"messages": USER, "stream": True}
    chunks = events(api.post(PATH, {**stream, "stream_options": {"include_usage": True}}))
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = events(api.post(PATH, {**stream, "stream_options": options}))
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [1, 1, 2, 3, 4, 5, 5]


def test_logprobs_have_the_best_alternatives(api):
    body = api.post(PATH, {"messages": USER, "logprobs": True, "top_logprobs": 2}).json()
    entry = body["choices"][0]["logprobs"]["content"][0]
    assert entry["token"] == "H"
    assert entry["bytes"] == [72]
    assert entry["logprob"] == -0.5
    assert [top["logprob"] for top in entry["top_logprobs"]] == [-0.5, -1.0]


def test_prompt_logprobs(api, llm):
    body = api.post(PATH, {"messages": USER, "prompt_logprobs": 1}).json()
    ids = llm.requests[0]["ids"]
    assert len(body["prompt_logprobs"]) == len(ids)
    assert body["prompt_logprobs"][0] is None
    assert body["prompt_logprobs"][1][str(ids[1])]["logprob"] == -0.5


def test_every_sampling_field_reaches_the_engine(api, llm):
    fields = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": -0.3,
        "logit_bias": {"72": -5.0},
        "allowed_token_ids": [1, 2],
        "bad_words": ["no"],
        "min_tokens": 1,
        "stop": ["x", "y"],
        "stop_token_ids": [3],
        "include_stop_str_in_output": True,
        "ignore_eos": True,
        "seed": -4,
        "skip_special_tokens": False,
    }
    api.post(PATH, {"messages": USER, **fields, "max_completion_tokens": 3, "priority": -2, "cache_salt": "s"})
    seen = llm.requests[0]
    params = seen["params"]
    assert {name: getattr(params, name) for name in fields} == fields | {"logit_bias": {72: -5.0}}
    assert (params.max_tokens, params.n, seen["priority"], seen["salt"]) == (3, 1, -2, "s")


def test_nulls_and_gaps_take_the_models_defaults(build, llm):
    api = build(llm, defaults={"temperature": 0.6, "top_p": 0.95})
    api.post(PATH, {"messages": USER, "temperature": None, "top_p": 0.5, "stop": None, "n": None})
    params = llm.requests[0]["params"]
    assert (params.temperature, params.top_p, params.n, params.max_tokens) == (0.6, 0.5, 1, None)


def test_length_is_told(api):
    choice = api.post(PATH, {"messages": USER, "max_tokens": 2}).json()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", "He")


def test_messages_are_made_plain_for_the_template(api, llm):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "42"},
    ]
    assert api.post(PATH, {"messages": messages}).status_code == 200
    seen = llm.rendered[0]["messages"]
    assert seen[0]["content"] == "a\nb"
    assert seen[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1}


def test_template_switches(api, llm):
    messages = [*USER, {"role": "assistant", "content": "Sure, "}]
    request = {"messages": messages, "continue_final_message": True, "echo": True, "documents": [{"text": "d"}]}
    body = api.post(PATH, {**request, "chat_template_kwargs": {"enable_thinking": False}}).json()
    seen = llm.rendered[0]
    assert (seen["continue_final_message"], seen["add_generation_prompt"]) == (True, False)
    assert (seen["enable_thinking"], seen["documents"]) == (False, [{"text": "d"}])
    assert body["choices"][0]["message"]["content"] == "Sure, Hello"


def test_ignored_fields_are_named(api):
    response = api.post(PATH, {"messages": USER, "user": "u", "reasoning_effort": "low", "bad\nname": 1, "zz": None})
    assert response.headers["x-core-ignored-fields"] == "reasoning_effort,zz"
    assert "x-core-ignored-fields" not in api.post(PATH, {"messages": USER}).headers


def test_the_engine_never_sees_the_clients_request_id(api, llm):
    ids = set()
    for _ in range(3):
        response = api.post(PATH, {"messages": USER}, headers={"x-request-id": "mine"})
        assert response.headers["x-request-id"] == "mine"
        ids.add(response.json()["id"])
    assert ids == {request["id"] for request in llm.requests}
    assert len(ids) == 3
    assert api.get("/health", headers={"x-request-id": "a" * 200}).headers["x-request-id"] != "a" * 200
