"""Other servers' APIs: any JSON body gives 2xx or 4xx in the API's own words, and never disturbs the next request."""

from __future__ import annotations

import asyncio

import httpx
import orjson
import pytest
from core_plugin_generate.llamacpp import CompletionBody
from core_plugin_generate.manifest import GENERATE
from core_plugin_generate.routes import GenerateRoutes
from core_plugin_generate.sglang import GenerateBody as SGLangBody
from core_plugin_ollama.bodies import ChatBody, EmbedBody, GenerateBody, Options
from core_plugin_ollama.manifest import OLLAMA
from core_plugin_ollama.routes import OllamaRoutes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.server.app import create_app
from core.server.plugin_routes.table import RouteTable

BODIES = {
    "/api/chat": ChatBody,
    "/api/generate": GenerateBody,
    "/api/embed": EmbedBody,
    "/generate": SGLangBody,
    "/completion": CompletionBody,
}
INSIDE = {
    "options": tuple(Options.model_fields),
    "sampling_params": ("n", "max_new_tokens", "stop", "temperature", "regex", "json_schema", "sampling_seed", "top_k"),
    "prompt": ("prompt_string", "multimodal_data"),
}
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0, 1, 2, -1, 0.5, 2.0, 1e308, -0.0, 2**31]),
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.sampled_from(["", "0", "2.0", "nan", "inf", "\u00b2", "1" * 5000, "json", "user", "a\x00b", "\u2028"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
numbers = st.lists(st.integers(0, 299), min_size=1, max_size=3)
LIKELY = {
    "messages": st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": st.text(max_size=5)}), max_size=2),
    "prompt": st.text(min_size=1, max_size=5) | numbers | st.lists(st.just("x") | numbers, max_size=3),
    "text": st.just("x") | st.lists(st.just("x"), max_size=3),
    "logit_bias": st.lists(st.tuples(scalars, scalars), max_size=2) | st.dictionaries(scalars.map(str), scalars),
}


def inside(names):
    return st.dictionaries(st.sampled_from(names), values, max_size=2)


def bodies(kind):
    fields = {}
    for name in kind.model_fields.keys() - {"model", "name"}:
        wild = values | inside(INSIDE[name]) if name in INSIDE else values
        fields[name] = wild
    base = {name: LIKELY[name] for name in ("messages", "prompt", "text") if name in fields}
    wild = st.sampled_from(sorted(fields)).flatmap(
        lambda name: st.tuples(st.just(name), LIKELY.get(name, st.nothing()) | fields[name])
    )
    return st.tuples(st.fixed_dictionaries(base), st.lists(wild, max_size=2)).map(
        lambda pair: {**pair[0], **dict(pair[1])}
    )


CASES = st.sampled_from(sorted(BODIES)).flatmap(lambda path: st.tuples(st.just(path), bodies(BODIES[path]) | values))


def declared(owner, spec, plugin, table):
    plugin.declare(table.registry(spec.name, owner, spec))
    table.plugins.append((owner, plugin))


@pytest.fixture
def llm(fake):
    return fake(reply="Hi")


@pytest.fixture
def app(llm, options):
    """The application with both plugins."""
    table = RouteTable()
    declared("'ollama' (test 1)", OLLAMA, OllamaRoutes({}), table)
    declared("'generate' (test 1)", GENERATE, GenerateRoutes({}), table)
    app = create_app(llm, options(), plugin_routes=table.routes)
    table.bind(app.state.core)
    return app


def asked(app, *posts):
    async def go():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            return [await client.post(path, content=orjson.dumps(body)) for path, body in posts]

    return asyncio.run(go())


def check_shape(path, answer):
    if answer.status_code >= 400:
        error = orjson.loads(answer.content)["error"]
        assert isinstance(error, str) if path.startswith("/api") else set(error) == {"code", "message", "type"}
    elif answer.headers["content-type"].startswith("text/event-stream"):
        events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
        assert all("error" not in orjson.loads(event) for event in events if event != "[DONE]"), answer.text
    else:
        records = [orjson.loads(line) for line in answer.content.splitlines() if line]
        assert all("error" not in record for record in records if isinstance(record, dict)), answer.text


@pytest.mark.covers("API-04")
@settings(max_examples=160, deadline=5000, suppress_health_check=list(HealthCheck), derandomize=True)
@given(case=CASES)
def test_any_json_body(case, app, llm):
    path, body = case
    first, second = asked(app, case, ("/api/generate", {"prompt": "a", "stream": False}))
    assert 200 <= first.status_code < 500, (body, first.text)
    check_shape(path, first)
    assert second.status_code == 200 and second.json()["response"] == "Hi"
    assert llm.running == 0 and app.state.core.pending == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", {"prompt": {"prompt_string": 5}}),
        ("/completion", {"prompt": {"prompt_string": None}}),
        ("/completion", {"prompt": [{"prompt_string": {"prompt_string": []}}]}),
        ("/completion", {"prompt": "x", "logit_bias": {"\u00b2": 1}}),
        ("/completion", {"prompt": "x", "logit_bias": [["1" * 5000, 1]]}),
        ("/completion", {"prompt": "x", "seed": 1e300}),
        ("/completion", {"prompt": "x", "n_cmpl": 10**18}),
        ("/generate", {"text": "x", "sampling_params": {"n": "2.0"}}),
        ("/generate", {"text": "x", "sampling_params": {"n": -1}}),
        ("/generate", {"text": "x", "sampling_params": {"n": 1e300}}),
        ("/generate", {"text": "x", "top_logprobs_num": -2, "return_logprob": True}),
        ("/api/generate", {"prompt": "x", "options": {"temperature": "nan"}}),
        ("/api/generate", {"prompt": "x", "options": {"seed": 1e300, "num_predict": 1e300}}),
        ("/api/generate", {"prompt": "x", "raw": True, "options": {"num_predict": 2**63}}),
        ("/api/generate", {"prompt": "x", "format": {"type": 5}}),
        ("/api/generate", {"prompt": "x", "raw": True, "format": {"$ref": "#/nowhere"}}),
        ("/api/chat", {"messages": [{"role": "tool", "tool_calls": [{"function": {"name": ""}}]}]}),
        ("/api/chat", {"messages": [{"role": "user", "content": "x"}], "top_logprobs": -1, "logprobs": True}),
    ],
)
def test_bodies_that_are_nearly_right(path, body, app):
    (answer,) = asked(app, (path, body))
    assert 200 <= answer.status_code < 500, answer.text
    check_shape(path, answer)


@pytest.mark.covers("API-04")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/completion", "/generate", "/api/chat"])
def test_a_server_that_stops_ends_the_answer(path, stream, app, llm):
    """Nobody waits for a generation that the server has ended, however many there are to a request."""
    llm.hold_at = 1
    fields = {"prompt": ["x", "x"], "text": ["x", "x"], "messages": [{"role": "user", "content": "x"}]}

    async def go():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            asked = asyncio.create_task(client.post(path, json={**fields, "stream": stream}))
            while llm.running < (1 if path == "/api/chat" else 2):
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            app.state.core.lifecycle.stop()
            return await asyncio.wait_for(asked, 5)

    answer = asyncio.run(go())
    assert answer.status_code == (200 if stream else 503)
    assert "shutting down" in answer.text and llm.running == 0
    assert app.state.core.pending == 0
