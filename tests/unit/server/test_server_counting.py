"""Routes that tokenize and generate nothing: bounded and admitted as completions are."""

from __future__ import annotations

import asyncio

import pytest

from core.engine.messages import Stats

USER = [{"role": "user", "content": "Hi"}]
LONG = [{"role": "user", "content": "a" * 2000}]
COUNTING = {
    "/tokenize": {"prompt": "a"},
    "/tokenize#chat": {"messages": USER},
    "/detokenize": {"tokens": [97]},
    "/apply-template": {"messages": USER},
    "/v1/chat/completions/render": {"messages": USER},
    "/v1/completions/render": {"prompt": "a"},
    "/v1/responses/input_tokens": {"input": "a"},
    "/v1/responses/render": {"input": "a"},
    "/v1/messages/count_tokens": {"messages": USER},
    "/v1/messages/render": {"messages": USER, "max_tokens": 2},
}
TOO_LONG = {
    "/tokenize": {"prompt": "a" * 110_000},
    "/tokenize#chat": {"messages": LONG},
    "/detokenize": {"tokens": [97] * 513},
    "/apply-template": {"messages": LONG},
    "/v1/chat/completions/render": {"messages": LONG},
    "/v1/completions/render": {"prompt": [97] * 513},
    "/v1/responses/input_tokens": {"input": "a" * 2000},
    "/v1/messages/count_tokens": {"messages": LONG},
}


@pytest.fixture
def preparing(fake):
    return fake


def post(api, name, body):
    return api.post(name.partition("#")[0], body)


@pytest.mark.parametrize("name", COUNTING)
def test_they_are_admitted(build, preparing, name):
    assert post(build(preparing()), name, COUNTING[name]).status_code == 200
    full = build(preparing(stats=Stats(waiting=64)))
    refused = post(full, name, COUNTING[name])
    assert refused.status_code == (529 if "messages/" in name else 503) and refused.headers["retry-after"]
    assert (
        'core_admission_rejections_total{model_name="acme/tiny",reason="queue_full"} 1.0' in full.get("/metrics").text
    )


@pytest.mark.parametrize("name", TOO_LONG)
def test_what_cannot_fit_is_refused(build, preparing, name):
    refused = post(build(preparing(), max_body_bytes=2**20), name, TOO_LONG[name])
    assert refused.status_code == 400
    assert "context_length_exceeded" in refused.text or "too long" in refused.text  # Anthropic's errors have no code


def test_a_text_longer_than_the_model_is_counted(build, preparing):
    answer = build(preparing()).post("/tokenize", {"prompt": "a" * 600}).json()
    assert (answer["count"], answer["max_model_len"]) == (601, 512)


def test_they_count_while_they_run(build, preparing):
    """So that a burst of them is refused, as one of completions is."""
    seen = []

    class Watching(preparing):
        async def tokenize(self, text, *, add_special_tokens=True):
            await asyncio.sleep(0)
            seen.append(api.app.state.core.pending)
            if text == "fail":
                raise RuntimeError("broken")
            return [1]

    api = build(Watching())
    assert api.post("/tokenize", {"prompt": "a"}).status_code == 200
    assert api.post("/tokenize", {"prompt": "fail"}).status_code == 500
    assert seen == [1, 1] and api.app.state.core.pending == 0
