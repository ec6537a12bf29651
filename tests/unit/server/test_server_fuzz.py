"""Any JSON body gives 2xx or 4xx, quickly, and never disturbs the next request."""

import asyncio

import httpx
import orjson
import pytest
from core_plugin_openai.protocol import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROUTES = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
}
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0, 1, 2, -1, 0.5, 1e308, -0.0, 2**31]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.sampled_from(["", "auto", "none", "required", "user", "a\x00b", "../..", "\u2028", "x" * 5000]),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
roles = st.sampled_from(["system", "user", "assistant", "tool", "nobody"])
messages = st.lists(
    st.fixed_dictionaries(
        {"role": roles, "content": st.text(max_size=5)}, optional={"tool_calls": values, "name": values}
    ),
    min_size=1,
    max_size=3,
)


def bodies(kind):
    likely = {"messages": messages, "prompt": st.text(max_size=5), "tokens": st.lists(st.integers(0, 299), max_size=5)}
    base = {name: likely[name] for name in likely if name in kind.model_fields}
    names = st.sampled_from(sorted(set(kind.model_fields) - {"model"}))
    wild = st.dictionaries(names | st.text(max_size=6), values, max_size=3)
    return st.tuples(st.fixed_dictionaries({}, optional=base), wild).map(lambda pair: {**pair[0], **pair[1]})


cases = st.sampled_from(sorted(ROUTES)).flatmap(lambda path: st.tuples(st.just(path), bodies(ROUTES[path]) | values))


@pytest.mark.covers("API-04")
@settings(max_examples=150, deadline=5000, suppress_health_check=list(HealthCheck), derandomize=True)
@given(case=cases)
def test_any_json_body(case, fake, options, app_of):
    path, body = case
    llm = fake(reply="Hi")
    app = app_of(llm, options())

    async def go():
        transport = httpx.ASGITransport(app)
        headers = {"content-type": "application/json"}
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            first = await client.post(path, content=orjson.dumps(body))
            return first, await client.post("/v1/completions", content=b'{"prompt": "a"}')

    first, second = asyncio.run(go())
    assert 200 <= first.status_code < 500, first.text
    if first.status_code >= 400:
        error = orjson.loads(first.content)["error"]
        assert set(error) == {"message", "type", "param", "code"}
    elif first.headers["content-type"].startswith("text/event-stream"):
        assert first.text.endswith("data: [DONE]\n\n")
        assert "event: error" not in first.text
    else:
        orjson.loads(first.content)
    assert second.status_code == 200
    assert llm.running == 0
    assert app.state.core.pending == 0
