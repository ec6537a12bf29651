"""A long prompt beside a stream is computed in small steps, and the stream goes on in between. Steps are counted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

PROMPT, BLOCK = 900, 32


@pytest.fixture(scope="module")
def hurried(launch):
    """The demo model, held to gaps that no machine keeps: chunks are blocks, however fast or busy it is."""
    flags = ("--threads", "1", "--dtype", "float32", "--max-model-len", "1024", "--num-blocks", "100")
    return launch("smollm2", *flags, "--max-itl-ms", "0.001", "--block-size", str(BLOCK)).wait_ready()


def answer(server, salt: str, **params) -> list[int]:
    """Have the long prompt answered with one token; return its id."""
    body = {"prompt": [1000 + 7 * i % 5000 for i in range(PROMPT)], "max_tokens": 1, "temperature": 0, **params}
    with server.http() as http:
        response = http.post("/v1/completions", json={**body, "return_token_ids": True, "cache_salt": salt})
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["token_ids"]


@pytest.mark.parametrize("params", [{}, {"prompt_logprobs": 1}], ids=["plain", "scored"])
def test_a_stream_goes_on_while_a_long_prompt_is_computed(hurried, params):
    before = hurried.gauges()["core_engine_steps_total"]
    alone = answer(hurried, "alone", **params)
    # Nobody waits for the end of its step; some of a stream that was left before may still count.
    assert hurried.gauges()["core_engine_steps_total"] <= before + 4

    body = {"prompt": [1, 2, 3], "max_tokens": 1000, "ignore_eos": True, "stream": True, "temperature": 0}
    with (
        hurried.http() as http,
        http.stream("POST", "/v1/completions", json=body) as stream,
        ThreadPoolExecutor() as pool,
    ):
        events = stream.iter_lines()
        next(events)
        beside = pool.submit(answer, hurried, "beside", **params)
        came = 0
        for line in events:
            came += line.startswith("data: {")
            if beside.done():
                break
    assert came >= PROMPT // BLOCK  # a token for each of its chunks
    assert beside.result() == alone
