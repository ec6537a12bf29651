"""Whatever a client sends, a route answers as its document says: no 5xx, no hang, no other content type.

Two kinds of requests: those that schemathesis makes from /openapi.json, and good requests of every POST route in which
a few fields are replaced by anything. 501 is an answer, not a failure: it says what this version does not do.
"""

from __future__ import annotations

import itertools
import json
import time

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

ANSWER_SECONDS = 30
NOT_HERE = 501
# Derandomized: a test that fails for one of its readers only is worth little. Shrinking would take minutes.
PROFILE = {"deadline": None, "derandomize": True, "database": None, "phases": [Phase.generate]}
QUIET = {"suppress_health_check": list(HealthCheck)}

MESSAGES = [{"role": "user", "content": "hi"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
CHAT = {"messages": MESSAGES, "max_tokens": 3}
PAIR = {"text_1": "one", "text_2": ["two", "three"]}
RERANK = {"query": "one", "documents": ["two", "three"]}

# A good body for every POST route that takes one; a route that is not named here fails the test.
GENERATING = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": "hi", "max_tokens": 3},
    "/v1/responses": {"input": "hi", "max_output_tokens": 3},
    "/v1/responses/input_tokens": {"input": "hi"},
    "/v1/messages": CHAT,
    "/v1/messages/count_tokens": {"messages": MESSAGES},
    "/apply-template": {"messages": MESSAGES},
    "/v1/chat/completions/render": CHAT,
    "/v1/completions/render": {"prompt": "hi"},
    "/v1/responses/render": {"input": "hi", "max_output_tokens": 3},
    "/v1/messages/render": CHAT,
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [1, 2]},
}
POOLING = {
    "/v1/embeddings": {"input": "hi"},
    "/v2/embed": {"texts": ["hi"], "input_type": "search_query", "embedding_types": ["float"]},
    "/pooling": {"input": "hi"},
    "/classify": {"input": "hi"},
    "/score": PAIR,
    "/v1/score": PAIR,
    "/rerank": RERANK,
    "/v1/rerank": RERANK,
    "/v2/rerank": RERANK,
}
ADMIN = {
    "/abort_requests": {"request_ids": ["x"]},
    "/init_weight_transfer_engine": {"init_info": {}},
    "/start_weight_update": {},
    "/update_weights": {"update_info": {}},
    "/update_weights_from_disk": {"model_path": "nowhere"},
    "/pause": {"mode": "abort"},
}

words = st.sampled_from(
    [
        "",
        "auto",
        "none",
        "required",
        "user",
        "json_object",
        "a\x00b",
        "../..",
        "\u2028",
        "x" * 3000,
        "f",
        "\ud7ff",
        "<s>",
    ]
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0, 1, 2, -1, 0.5, 1e308, -0.0, 2**31, 2**53]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8"), max_size=8),
    words,
)
parts = st.sampled_from(
    [
        {"type": "text", "text": "hi"},
        {"type": "input_text", "text": "hi"},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
        {"type": "tool_result", "tool_use_id": "c1", "content": "x"},
        {"type": "function_call_output", "call_id": "c1", "output": "x"},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        {"type": "json_schema", "name": "x", "schema": {"$ref": "#"}},
        {"type": "function", "function": {"name": "f"}},
        {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"a": {"type": []}}}},
        {"type": "enabled", "budget_tokens": 1024},
        TOOL,
        CALL,
    ]
)
leaves = st.one_of(scalars, parts)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "nobody"])},
    optional={
        "content": st.one_of(st.text(max_size=5), st.lists(parts, max_size=2), scalars),
        "tool_calls": st.one_of(st.lists(st.just(CALL), max_size=2), scalars),
        "tool_call_id": scalars,
        "name": scalars,
        "reasoning_content": scalars,
    },
)
likely = st.sampled_from([None, True, False, 0, 1, 2, 3, 0.5, 1.0, "x", ["x"], [1], {}])
values = st.recursive(
    st.one_of(leaves, st.lists(messages, max_size=3)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def generating(launch, tiny):
    """A model that generates, with everything on that reads or forces its output; at most 64 tokens."""
    flags = ("--threads", "1", "--dtype", "float32", "--num-blocks", "400", "--max-model-len", "64")
    return launch(str(tiny), *flags, "--tool-parser", "hermes", "--weight-transfer", "disk").wait_ready()


@pytest.fixture(scope="module")
def pooling(launch):
    return launch("minilm", "--threads", "1", "--dtype", "float32").wait_ready()


def problem(response, operation, seconds):
    """Return what is wrong with an answer, or None."""
    kind = response.headers.get("content-type", "")
    kind = (kind[0] if isinstance(kind, list) else kind).partition(";")[0]
    status, text = response.status_code, response.text
    documented = operation["responses"]["200" if status < 400 else "default"]["content"]
    if status >= 500 and status != NOT_HERE:
        return f"{status} {text[:300]}"
    if kind not in documented:
        return f"{status} with content type {kind!r}, documented are {sorted(documented)}"
    if kind == "application/json":
        json.loads(text)
    if kind == "text/event-stream" and ("event: error" in text and '"server_error"' in text):
        return f"a stream that failed: {text[-300:]}"
    if status >= 400 and "error" not in json.loads(text):
        return f"{status} without an error: {text[:100]}"
    return f"{seconds:.0f} s" if seconds > ANSWER_SECONDS / 2 else None


def assert_serves(server, path, body):
    """After everything that was sent, the server is as before."""
    with server.http() as http:
        http.post("/resume")
        assert http.post(path, json=body).status_code == 200
        assert http.get("/ready").status_code == 200
    gauges = server.gauges()
    assert gauges["core_num_requests_running"] == gauges["core_num_requests_waiting"] == 0
    assert "Traceback" not in server.stderr


@pytest.mark.covers("API-04")
def test_requests_made_from_the_document(generating):
    schema = schemathesis.openapi.from_url(f"{generating.url}/openapi.json")
    problems, counts = [], {}

    def explore(operation):
        @settings(max_examples=12, **PROFILE, **QUIET)
        @given(case=operation.as_strategy())
        def run(case):
            started = time.monotonic()
            response = case.call(timeout=ANSWER_SECONDS)
            wrong = problem(response, operation.definition.raw, time.monotonic() - started)
            counts[operation.label] = counts.get(operation.label, 0) + 1
            if wrong:
                problems.append(f"{operation.label}: {wrong}: {case.as_curl_command()[:500]}")

        run()

    for result in schema.get_all_operations():
        if (operation := result.ok()).label != "POST /drain":  # ends the server, as it should
            explore(operation)
    assert not problems, "\n".join(problems[:10])
    assert len(counts) >= 50 and sum(counts.values()) > 300
    assert_serves(generating, "/v1/completions", GENERATING["/v1/completions"])


def good_bodies(routes, document):
    """A strategy for (path, body): a good body in which up to three fields are anything."""

    def bodies(path):
        schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        names = st.sampled_from(sorted(set(schema["properties"]) - {"model"}))
        fields = [st.tuples(names, likely)] * 5 + [st.tuples(names, values)] * 3 + [st.tuples(st.text(), values)]
        wild = st.lists(st.one_of(fields), max_size=3).map(lambda found: {**routes[path], **dict(found)})
        return st.tuples(st.just(path), st.one_of([wild] * 9 + [values]))

    return st.sampled_from(sorted(routes)).flatmap(bodies)


def any_body(server, routes, examples):
    """Send `examples` bodies to the routes; return how often each status came."""
    statuses, number = {}, itertools.count()
    with server.http(headers={"content-type": "application/json"}) as http:
        document = http.get("/openapi.json").json()

        @settings(max_examples=examples, **PROFILE, **QUIET)
        @given(case=good_bodies(routes, document))
        def run(case):
            path, body = case
            started = time.monotonic()
            response = http.post(path, content=json.dumps(body).encode(), timeout=ANSWER_SECONDS)
            wrong = problem(response, document["paths"][path]["post"], time.monotonic() - started)
            assert not wrong, f"example {next(number)}: POST {path}: {wrong}: {json.dumps(body)[:1000]}"
            statuses[response.status_code] = statuses.get(response.status_code, 0) + 1

        run()
    return statuses


def test_every_route_with_a_body_is_tried(generating):
    with generating.http() as http:
        paths = http.get("/openapi.json").json()["paths"]
    with_body = {path for path, methods in paths.items() if "requestBody" in methods.get("post", {})}
    assert with_body == {*GENERATING, *POOLING, *ADMIN}


@pytest.mark.covers("API-04")
def test_any_body_where_text_is_generated(generating):
    statuses = any_body(generating, GENERATING, 1000)
    assert statuses[200] > 80 and statuses[400] > 80, statuses
    assert_serves(generating, "/v1/completions", GENERATING["/v1/completions"])


@pytest.mark.covers("API-04")
def test_any_body_where_vectors_are_made(pooling):
    statuses = any_body(pooling, POOLING, 300)
    assert statuses[200] > 20 and statuses[400] > 20, statuses
    assert_serves(pooling, "/v1/embeddings", POOLING["/v1/embeddings"])


@pytest.mark.covers("API-04")
def test_any_body_for_those_who_run_the_server(generating):
    statuses = any_body(generating, ADMIN, 80)
    assert statuses[200] and statuses[400], statuses
    assert_serves(generating, "/v1/completions", GENERATING["/v1/completions"])
