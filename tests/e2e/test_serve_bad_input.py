"""Requests that cannot be served: each is told why, in one shape, and the server goes on."""

from __future__ import annotations

import json
import re
import socket

import pytest

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
USER = [{"role": "user", "content": "Hi"}]
GOOD = {"prompt": "every token", "max_tokens": 2, "ignore_eos": True}
DEEP = '{"prompt": ' + "[" * 5000 + "]" * 5000 + "}"
INSIDES = re.compile(r"0x[0-9a-f]{4}|/home|/root|/usr|/tmp|site-packages|\.py\b|Traceback", re.IGNORECASE)


@pytest.fixture(scope="module")
def http(tiny_server):
    with tiny_server.http() as http:
        yield http


@pytest.fixture(autouse=True)
def goes_on(http):
    """After every test the server still answers."""
    yield
    answer = http.post(COMPLETIONS, json=GOOD)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 2


def refused(answer, status=400, *, param=None, code=None):
    """Check the shape of a refusal and return its message."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str) and error["message"]
    assert error["type"] == "invalid_request_error"
    assert not INSIDES.search(answer.text), answer.text
    if param is not None:
        assert error["param"] == param
    if code is not None:
        assert error["code"] == code
    return error["message"]


def post_raw(http, path, body, **headers):
    return http.post(path, content=body, headers={"content-type": "application/json", **headers})


@pytest.mark.covers("API-04")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"prompt": "a",}',
        b"[]",
        b'"text"',
        b"null",
        b"\xff\xfe{}",
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "temperature": Infinity}',
        b'{"prompt": "a", "top_p": -Infinity}',
        DEEP.encode(),
        b'{"prompt": ' + b"[" * 5000,
    ],
)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, "/tokenize", "/detokenize"])
def test_malformed_json(http, path, body):
    refused(post_raw(http, path, body))


@pytest.mark.covers("API-04")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", "hot"),
        ("temperature", -0.1),
        ("temperature", 1e308),
        ("temperature", True),
        ("temperature", [1]),
        ("top_p", 0),
        ("top_p", -1),
        ("top_p", 1.5),
        ("top_k", -7),
        ("top_k", 1.5),
        ("min_p", -0.1),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1),
        ("presence_penalty", 3),
        ("frequency_penalty", -3),
        ("n", 0),
        ("n", -1),
        ("n", 10**9),
        ("n", "two"),
        ("n", 1.5),
        ("max_tokens", -1),
        ("max_tokens", 10**9),
        ("max_tokens", 10**30),
        ("max_tokens", "many"),
        ("max_tokens", 1.5),
        ("min_tokens", -1),
        ("min_tokens", 10**9),
        ("seed", 2**63),
        ("seed", -(2**63) - 1),
        ("seed", "x"),
        ("stop", [""]),
        ("stop", ""),
        ("stop", [1]),
        ("stop", ["x"] * 5000),
        ("stop", ["x" * 10**6]),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [10**9]),
        ("stop_token_ids", ["a"]),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"999999": 1}),
        ("logit_bias", {"5": 1e9}),
        ("logit_bias", [1]),
        ("allowed_token_ids", []),
        ("allowed_token_ids", [-1]),
        ("bad_words", [""]),
        ("bad_words", "word"),
        ("stream", "yes"),
        ("stream_options", {"include_usage": True}),
        ("stream_options", 5),
        ("priority", 2**40),
        ("cache_salt", ""),
        ("cache_salt", 5),
        ("prompt_logprobs", -5),
        ("prompt_logprobs", 10**6),
        ("response_format", {"type": "poem"}),
        ("response_format", {"type": "json_schema"}),
        ("structured_outputs", {"regex": "a", "choice": ["b"]}),
        ("structured_outputs", {"regex": "(("}),
        ("guided_json", "{"),
        ("echo", 1),
    ],
    ids=lambda value: str(value)[:24],
)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_bad_field_is_named(http, path, field, value):
    body = {"prompt": "every token"} if path == COMPLETIONS else {"messages": USER}
    answer = http.post(path, json={**body, field: value})
    refused(answer)
    assert (answer.json()["error"]["param"] or "").startswith(field), answer.text


@pytest.mark.covers("API-04")
@pytest.mark.parametrize(
    "prompt",
    ["", [], [[]], [""], ["a", ""], None, 5, 1.5, True, {}, {"prompt": "a"}, [None], [1.5], [1, "a"], ["a", 1],
     [[1], "a"], [[1], []], [[[1]]], [-1], [10**6], [[10**6]], [True], [[1, None]], [10**30]],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_bad_prompts(http, prompt, stream):
    refused(http.post(COMPLETIONS, json={"prompt": prompt, "stream": stream}), param="prompt")


@pytest.mark.covers("API-04")
def test_a_prompt_must_be_there(http):
    refused(http.post(COMPLETIONS, json={}), param="prompt")
    refused(http.post(CHAT, json={}), param="messages")


@pytest.mark.covers("API-04")
@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("hello", "messages"),
        ([5], "messages[0]"),
        ([{}], "messages[0].role"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([*USER, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}],
         "messages[1].content[0]"),
        ([{"role": "assistant", "content": None, "tool_calls": [{"function": {}}]}],
         "messages[0].tool_calls[0].function"),
    ],
)  # fmt: skip
def test_bad_conversations(http, messages, param):
    refused(http.post(CHAT, json={"messages": messages}), param=param)


@pytest.mark.covers("API-04")
def test_limits_of_the_output(http):
    for path, body in ((COMPLETIONS, {"prompt": "every token"}), (CHAT, {"messages": USER})):
        refused(http.post(path, json={**body, "max_tokens": 0}), param="max_tokens")
        refused(http.post(path, json={**body, "max_tokens": 5000}), param="max_tokens", code="context_length_exceeded")
        message = refused(http.post(path, json={**body, "max_tokens": 1024}), param="max_tokens")
        assert "1024 tokens" in message
    for body in ({"max_completion_tokens": 0}, {"max_completion_tokens": -5}):
        refused(http.post(CHAT, json={"messages": USER, **body}), param="max_completion_tokens")
    refused(http.post(CHAT, json={"messages": USER, "top_logprobs": 2}), param="top_logprobs")
    refused(http.post(CHAT, json={"messages": USER, "logprobs": True, "top_logprobs": 10**6}), param="top_logprobs")
    refused(http.post(COMPLETIONS, json={**GOOD, "logprobs": -3}), param="logprobs")
    assert http.post(CHAT, json={"messages": USER, "max_tokens": 1}).status_code == 200


@pytest.mark.covers("API-04")
@pytest.mark.parametrize("text", ["a" * 5_000_000, "the cache " * 500_000, "日本" * 800_000], ids=["a", "words", "cjk"])
@pytest.mark.parametrize("extra", [{}, {"add_special_tokens": False}, {"stream": True}], ids=str)
def test_a_text_of_5_mb_is_refused_before_it_is_tokenised(tiny_server, http, text, extra):
    before = tiny_server.cpu_seconds()
    answer = http.post(COMPLETIONS, json={"prompt": text, **extra})
    assert tiny_server.cpu_seconds() - before < 1
    refused(answer, param="prompt", code="context_length_exceeded")


@pytest.mark.covers("API-04")
def test_prompts_of_too_many_tokens(tiny_server, http):
    before = tiny_server.cpu_seconds()
    answer = http.post(CHAT, json={"messages": [{"role": "user", "content": "the cache " * 500_000}]})
    assert tiny_server.cpu_seconds() - before < 1
    refused(answer, code="context_length_exceeded")
    message = refused(
        http.post(COMPLETIONS, json={"prompt": "x1 " * 700}), param="prompt", code="context_length_exceeded"
    )
    assert "1024" in message
    for prompt in ([5] * 1024, [[5] * 3, [5] * 2000], [5] * 10**6):
        refused(http.post(COMPLETIONS, json={"prompt": prompt}), param="prompt", code="context_length_exceeded")
    refused(http.post(COMPLETIONS, json={"prompt": ["a"] * 2000}), param="prompt")
    refused(http.post(COMPLETIONS, json={"prompt": ["a"] * 1000, "n": 100}), param="n")


@pytest.mark.covers("API-01", "API-04")
def test_models_routes_and_methods_that_do_not_exist(http):
    for path, body in ((COMPLETIONS, GOOD), (CHAT, {"messages": USER}), ("/tokenize", {"prompt": "a"})):
        refused(http.post(path, json={**body, "model": "gpt-9"}), 404, param="model", code="model_not_found")
    refused(http.get("/v1/models/gpt-9"), 404, code="model_not_found")
    for path in ("/v1/nothing", "/", "/v1", "/docs", "/v1/completions/x", "/../../etc/passwd"):
        refused(http.get(path), 404, code="route_not_found")
    refused(http.get(COMPLETIONS), 405)
    refused(http.put(CHAT, json={}), 405)
    answer = http.post("/v1/models", json={})
    refused(answer, 405)
    assert answer.headers["allow"] == "GET"


@pytest.mark.covers("API-04")
def test_bodies_that_are_not_json_or_too_large(http, tiny_server):
    for media in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        refused(post_raw(http, COMPLETIONS, b'{"prompt": "a"}', **{"content-type": media}), 415)
    refused(post_raw(http, COMPLETIONS, b" " * (33 * 2**20)), 413)

    def pieces():
        for _ in range(33):
            yield b" " * 2**20

    with tiny_server.http() as other:  # no length announced: counted while it arrives
        try:
            refused(post_raw(other, COMPLETIONS, pieces()), 413)
        except OSError as error:  # the refusal may overtake what is still being sent
            pytest.fail(f"no answer: {error}")


@pytest.mark.covers("API-04")
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nhost: x\r\n" + b"x-a: b\r\n" * 500 + b"\r\n", 431),
        (b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400),
    ],
    ids=["text", "tls", "version", "target", "headers", "length"],
)
def test_bytes_that_are_no_request(tiny_server, sent, status):
    host, port = tiny_server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(sent)
        got = b""
        while chunk := connection.recv(65536):
            got += chunk
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), got
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


@pytest.mark.covers("API-04", "OBS-04")
def test_the_sweep_left_no_trace(tiny_server, http):
    """Whatever the tests above sent: no 5xx, nothing still held, no traceback in the log."""
    page = http.get("/metrics").text
    served = re.findall(r'core_http_requests_total\{model_name="[^"]*",route="[^"]*",status="(\d+)"\}', page)
    assert {"200", "400", "404"} <= set(served)
    assert not [status for status in served if status.startswith("5")]
    gauges = tiny_server.gauges()
    assert gauges["core_num_requests_running"] == gauges["core_num_requests_waiting"] == 0
    assert "Traceback" not in tiny_server.stderr
    assert "core: " not in tiny_server.stderr
