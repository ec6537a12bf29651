"""What a request becomes before the engine sees it, without generating anything."""

from __future__ import annotations

import pytest

MESSAGES = [{"role": "user", "content": "Hi there"}]


def ids_of(llm):
    """Token ids of the prompts that reached the engine."""
    return [request["ids"] for request in llm.requests]


@pytest.mark.covers("API-01")
def test_a_chat_is_rendered_as_it_would_be_answered(api, llm):
    body = {"messages": MESSAGES, "temperature": 0.5, "max_tokens": 7, "stop": ["x"]}
    shown = api.post("/v1/chat/completions/render", body).json()
    assert llm.requests == []
    api.post("/v1/chat/completions", body)
    assert ids_of(llm) == [shown["token_ids"]]
    assert shown["prompt"] == "<s>[user]Hi there"
    assert shown["count"] == len(shown["token_ids"])
    assert shown["sampling_params"]["temperature"] == 0.5
    assert (shown["sampling_params"]["max_tokens"], shown["sampling_params"]["stop"]) == (7, ["x"])
    assert shown["stop_token_ids"] == [257]
    assert (shown["model"], shown["max_model_len"]) == (llm.model_name, llm.max_model_len)


TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


@pytest.mark.covers("API-01", "TOOL-01")
@pytest.mark.parametrize(
    "fields",
    [
        {"tools": TOOLS, "tool_choice": "required"},
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "add"}}},
        {"response_format": {"type": "json_object"}, "stop": ["x", "y"], "bad_words": ["no"], "seed": 3},
    ],
    ids=["required", "named", "format"],
)
def test_what_is_shown_is_all_that_the_engine_is_asked_for(api, llm, fields):
    llm.grammars = True
    body = {"messages": MESSAGES, "max_tokens": 9, **fields}
    shown = api.post("/v1/chat/completions/render", body).json()["sampling_params"]
    api.post("/v1/chat/completions", body)
    asked = llm.requests[0]["params"]
    grammar = asked.grammar
    assert shown["grammar"] == {
        "kind": grammar.kind,
        "param": grammar.param,
        **({"value": grammar.value} if grammar.value else {}),
    }
    assert (shown["stop"], shown["bad_words"], shown["seed"]) == (asked.stop, asked.bad_words, asked.seed)


@pytest.mark.covers("API-01")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "Hi", "temperature": 0.5, "max_output_tokens": 7, "stop": ["x"]}),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 32000, "stop_sequences": ["x"], "top_k": 3}),
    ],
)
def test_the_other_apis_show_the_same(api, llm, path, body):
    shown = api.post(f"{path}/render", body)
    assert shown.status_code == 200 and llm.requests == []
    assert api.post(path, body).status_code == 200
    (asked,), found = llm.requests, shown.json()
    params = asked["params"]
    assert (found["token_ids"], found["sampling_params"]["stop"]) == (asked["ids"], params.stop)
    for name in ("temperature", "top_k", "max_tokens"):
        assert found["sampling_params"][name] == getattr(params, name)


def test_completions_are_rendered_prompt_by_prompt(api, llm):
    body = {"prompt": ["one", "two"], "max_tokens": 3}
    shown = api.post("/v1/completions/render", body).json()
    api.post("/v1/completions", body)
    assert sorted(ids_of(llm)) == sorted(one["token_ids"] for one in shown)
    assert [one["prompt"] for one in shown] == ["<s>one", "<s>two"]
    (given,) = api.post("/v1/completions/render", {"prompt": [5, 6, 7]}).json()
    assert given["token_ids"] == [5, 6, 7]
    assert given["sampling_params"]["max_tokens"] == 16


def test_the_text_of_a_template(api):
    assert api.post("/apply-template", {"messages": MESSAGES}).json() == {"prompt": "<s>[user]Hi there"}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions/render", {"messages": MESSAGES, "temperature": -1}, "temperature"),
        ("/v1/chat/completions/render", {"messages": []}, "messages"),
        ("/v1/chat/completions/render", {"messages": [{"role": "user", "content": "x" * 2000}]}, "messages"),
        ("/v1/completions/render", {"prompt": "x" * 2000}, "prompt"),
        ("/v1/completions/render", {"prompt": [999]}, "prompt"),
        ("/apply-template", {"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
    ],
)
def test_what_would_be_refused_is_refused(api, llm, path, body, param):
    refused = api.post(path, body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    assert llm.requests == []


def test_another_model_and_fields_without_effect(api):
    assert api.post("/apply-template", {"messages": MESSAGES, "model": "other"}).status_code == 404
    answer = api.post("/apply-template", {"messages": MESSAGES, "wobble": 1})
    assert answer.headers["x-core-ignored-fields"] == "wobble"


@pytest.mark.covers("REND-08")
def test_the_tokenizers_settings_are_shown_on_request_only(build, llm):
    class Wrapped:
        def __str__(self):
            return "<s>"

    llm.tokenizer.special_tokens = lambda: {"bos_token": Wrapped(), "eos_token": None, "additional": [Wrapped()]}
    refused = build(llm).get("/tokenizer_info")
    assert refused.status_code == 404 and "--tokenizer-info" in refused.json()["error"]["message"]
    info = build(llm, tokenizer_info=True).get("/tokenizer_info").json()
    assert (info["vocab_size"], info["eos_token_ids"], info["bos_token_id"]) == (300, [257], 256)
    assert (info["bos_token"], info["eos_token"], info["additional"]) == ("<s>", None, ["<s>"])
    assert sorted(info["added_tokens_decoder"]) == ["256", "257"]
    assert info["chat_template"] == "yes"
