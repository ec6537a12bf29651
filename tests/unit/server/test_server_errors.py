"""One shape for every error, and a server that goes on after each."""

import logging

import pytest

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "Hi"}]


def check(api, response, status, param=None, code=None):
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    if param is not None:
        assert body["error"]["param"] == param
    if code is not None:
        assert body["error"]["code"] == code
    assert api.post(COMPLETIONS, {"prompt": "still there?"}).status_code == 200


NUMBERS = [
    ("temperature", -0.1),
    ("temperature", 1e9),
    ("temperature", "0.5"),
    ("temperature", True),
    ("temperature", []),
    ("top_p", 0),
    ("top_p", 1.5),
    ("top_k", -2),
    ("top_k", 1.5),
    ("min_p", -1),
    ("repetition_penalty", 0),
    ("presence_penalty", 2.1),
    ("frequency_penalty", -2.1),
    ("n", 0),
    ("n", -1),
    ("n", 129),
    ("n", 10**9),
    ("n", 10**30),
    ("n", "2"),
    ("seed", 2**63),
    ("seed", 0.5),
    ("min_tokens", -1),
    ("min_tokens", 10**6),
    ("max_tokens", -1),
    ("prompt_logprobs", -1),
    ("prompt_logprobs", 10**6),
    ("stop", [""]),
    ("stop", ["x"] * 17),
    ("stop", "x" * 2000),
    ("stop", 5),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", ["a"]),
    ("bad_words", [""]),
    ("bad_words", ["a"] * 129),
    ("allowed_token_ids", []),
    ("logit_bias", {"a": 1}),
    ("logit_bias", {"1": "x"}),
    ("logit_bias", {"1": 101}),
    ("logit_bias", [1]),
    ("stream", "yes"),
    ("echo", 1),
    ("priority", 2**40),
    ("cache_salt", ""),
    ("cache_salt", "s" * 1000),
    ("best_of", 4),
    ("use_beam_search", "yes"),
    ("length_penalty", 2.0),
    ("early_stopping", True),
    ("response_format", {"type": "json_object"}),
    ("structured_outputs", {"json": {}}),
    ("stream_options", {"include_usage": True}),
]


@pytest.mark.covers("API-04")
@pytest.mark.parametrize(("name", "value"), NUMBERS, ids=lambda value: str(value)[:24])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_bad_parameters(api, path, name, value):
    fields = {"messages": USER} if path == CHAT else {"prompt": "a"}
    response = api.post(path, {**fields, name: value})
    check(api, response, 400)
    assert response.json()["error"]["param"].partition("[")[0].partition(".")[0] == name


@pytest.mark.covers("API-04")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [1]}, "messages[0]"),
        ({"messages": [{}]}, "messages[0].role"),
        ({"messages": [{"role": "pirate", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": ["user"], "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [5]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": []}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": "x"}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [3]}]}, "messages[0].tool_calls[0].function"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"messages": USER, "top_logprobs": 3}, "top_logprobs"),
        ({"messages": USER, "logprobs": True, "top_logprobs": 1000}, "top_logprobs"),
        ({"messages": USER, "logprobs": 2}, "logprobs"),
        ({"messages": USER, "tools": [{"type": "web"}]}, "tools[0]"),
        ({"messages": USER, "tools": [{}] * 129}, "tools"),
        ({"messages": USER, "tool_choice": "required"}, "tool_choice"),
        ({"messages": USER, "tool_choice": "sometimes"}, "tool_choice"),
        ({"messages": USER, "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"messages": USER, "chat_template": "{{ 1 }}"}, "chat_template"),
        ({"messages": USER, "chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs"),
        ({"messages": USER, "chat_template_kwargs": {"self": 1}}, "chat_template_kwargs"),
        ({"messages": USER, "chat_template_kwargs": {"a b": 1}}, "chat_template_kwargs"),
        ({"messages": USER, "add_generation_prompt": True, "continue_final_message": True}, "continue_final_message"),
        ({"messages": USER, "stream": True, "prompt_logprobs": 1}, "prompt_logprobs"),
        ({"messages": USER, "max_completion_tokens": 0}, "max_completion_tokens"),
        ({"messages": USER, "max_tokens": 0}, "max_tokens"),
        ({"messages": USER, "min_tokens": 5, "max_tokens": 2}, "min_tokens"),
        ({"messages": USER, "stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"messages": [{"role": "user", "content": "x" * 600}]}, "messages"),
    ],
    ids=str,
)
def test_bad_chats(api, fields, param):
    check(api, api.post(CHAT, fields), 400, param)


@pytest.mark.covers("API-04")
@pytest.mark.parametrize(
    "prompt",
    [
        "",
        [],
        [[]],
        [""],
        [[1], []],
        None,
        5,
        {},
        [None],
        ["a", 1],
        [1, "a"],
        [[1], "a"],
        [1.5],
        [True],
        [-1],
        [300],
        [[10**30]],
        "x" * 600,
        [1] * 600,
        ["a"] * 1025,
        [[1]] * 1025,
    ],
    ids=lambda value: str(value)[:20],
)
def test_bad_prompts(api, llm, prompt):
    check(api, api.post(COMPLETIONS, {"prompt": prompt}), 400, "prompt")


def test_too_many_sequences(api):
    check(api, api.post(COMPLETIONS, {"prompt": ["a"] * 100, "n": 100}), 400, "n")


def test_no_output_needs_echo(api):
    check(api, api.post(COMPLETIONS, {"prompt": "a", "max_tokens": 0}), 400, "max_tokens")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b"null",
        b'"a"',
        b"\xff\xfe",
        b'{"prompt": NaN}',
        b'{"prompt": "a", "temperature": Infinity}',
        b'{"prompt": "a", "temperature": -Infinity}',
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "\\ud800"}',
        b"[" * 5000,
        b'{"prompt": ' + b"[" * 900 + b"]" * 900 + b"}",
    ],
    ids=lambda value: repr(value[:24]),
)
def test_bad_json(api, raw):
    check(api, api.raw(COMPLETIONS, raw), 400)


def test_other_media_types_are_refused(api):
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        response = api.post(COMPLETIONS, content=b'{"prompt": "a"}', headers={"content-type": kind})
        check(api, response, 415)


def test_unknown_model(api):
    for path, fields in ((CHAT, {"messages": USER}), (COMPLETIONS, {"prompt": "a"}), ("/tokenize", {"prompt": "a"})):
        check(api, api.post(path, {**fields, "model": "other/model"}), 404, "model", "model_not_found")
    check(api, api.get("/v1/models/other/model"), 404, "model", "model_not_found")


def test_unknown_route_and_method(api):
    check(api, api.get("/v1/nothing"), 404, code="route_not_found")
    check(api, api.get("/docs"), 404)
    response = api.get(CHAT)
    check(api, response, 405, code="method_not_allowed")
    assert "POST" in response.headers["allow"]


def test_the_engine_is_gone(build, fake, engine_error):
    llm = fake(failure=engine_error, fail_at=0)
    for stream in (False, True):
        response = build(llm).post(CHAT, {"messages": USER, "stream": stream})
        assert response.status_code == 503
        assert response.headers["retry-after"]
        error = response.json()["error"]
        assert error["code"] == "CORE-E110"
        assert "0x7f" not in error["message"]
        assert "/opt" not in error["message"]
    llm.healthy = False
    response = build(llm).post(CHAT, {"messages": USER})
    assert (response.status_code, response.json()["error"]["code"]) == (503, "engine")


def test_the_queue_is_full(build, llm):
    api = build(llm, max_waiting=4)
    llm.stats.waiting = 4
    response = api.post(COMPLETIONS, {"prompt": "a"})
    assert (response.status_code, response.json()["error"]["code"]) == (503, "queue_full")
    assert response.headers["retry-after"]
    llm.stats.waiting = 3
    assert api.post(COMPLETIONS, {"prompt": "a"}).status_code == 200
    assert not llm.aborted


def test_a_burst_counts_before_the_engine_reports_it(build, llm):
    api = build(llm, max_waiting=4, max_num_seqs=2)
    assert api.post(COMPLETIONS, {"prompt": "a", "n": 6}).status_code == 200
    assert api.post(COMPLETIONS, {"prompt": "a", "n": 7}).status_code == 503
    assert api.app.state.core.pending == 0


class Hostile(Exception):
    def __str__(self):
        raise RuntimeError("no text for you")


@pytest.mark.covers("OBS-06")
@pytest.mark.parametrize("error", [RuntimeError("secret /home/x/y.py at 0x7fffdeadbeef"), Hostile(), MemoryError("x")])
def test_surprises_tell_nothing(build, fake, error, caplog):
    api = build(fake(failure=error, fail_at=0))
    with caplog.at_level(logging.ERROR):
        response = api.post(CHAT, {"messages": USER})
    assert response.status_code == 500
    assert response.json()["error"] == {
        "message": "An internal error occurred; the request was not completed.",
        "type": "server_error",
        "param": None,
        "code": "internal_error",
    }
    assert type(error).__name__ in caplog.text
    assert api.get("/health").status_code == 200


def test_rejected_values_are_not_repeated(api):
    response = api.post(COMPLETIONS, {"prompt": "a", "temperature": "my secret prompt"})
    assert "secret" not in response.text


def test_a_field_of_several_types_is_wrong_in_all_their_words(api):
    refusal = api.post(CHAT, {"messages": USER, "tool_choice": 5}).json()["error"]
    assert refusal["message"] == "tool_choice: Input should be a valid string or a valid object"
    refusal = api.post(CHAT, {"messages": USER, "stop": ["x"] * 17}).json()["error"]
    assert refusal["message"].startswith("stop: Input should be a valid string; List should have at most 16 items")


def test_grammars_that_ask_too_much_are_the_client_s_own_fault(build, fake):
    for code, status in (("CORE-E122", 400), ("CORE-E162", 400), ("CORE-E161", 500)):
        answer = build(fake(row_error=f"{code} no")).post(CHAT, {"messages": USER})
        assert answer.status_code == status and code in answer.json()["error"]["message"]
