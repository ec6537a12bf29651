"""Many requests at once, clients that leave, and prompts that come again."""

from __future__ import annotations

import asyncio
import json
import random
import time

import httpx
import pytest

IDLE = {"core_num_requests_running": 0, "core_num_requests_waiting": 0, "core_kv_cache_usage_perc": 0}
WORDS = ("every", "token", "reads", "the", "next", "step", ",", "and", "then", "a", "worker", "plans", "blocks", ".")


def _mixed_requests(count: int) -> list[tuple[str, dict]]:
    """Chat and plain, streamed and whole, lengths from 1 to 200 tokens, each prompt unlike every other."""
    draw = random.Random(5)
    requests = []
    for number in range(count):
        text = f"{number} " + " ".join(draw.choices(WORDS, k=draw.choice((1, 5, 20, 60))))
        body = {"temperature": 0.0, "ignore_eos": True, "return_token_ids": True, "stream": number % 4 < 2}
        body["max_tokens"] = 1 + (number * 199) // (count - 1) if number % 3 == 0 else 1 + number % 40
        if number % 2:
            requests.append(("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **body}))
        else:
            requests.append(("/v1/completions", {"prompt": text, **body}))
    return requests


async def _answer(client: httpx.AsyncClient, path: str, body: dict) -> tuple[str, list[int], str]:
    """Text, token ids and finish reason; of a stream put together from its events."""
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    if not body["stream"]:
        (choice,) = response.json()["choices"]
        return (
            choice.get("text") or choice.get("message", {}).get("content", ""),
            choice["token_ids"],
            choice["finish_reason"],
        )
    text, ids, reason = "", [], None
    events = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert events.pop() == "[DONE]"
    for event in events:
        (choice,) = json.loads(event)["choices"]
        text += choice.get("text") or choice.get("delta", {}).get("content", "")
        ids += choice.get("token_ids") or []
        reason = choice["finish_reason"] or reason
    return text, ids, reason


@pytest.mark.covers("ENG-01", "ENG-06", "API-01")
def test_64_requests_at_once_answer_as_each_does_alone(tiny_server):
    requests = _mixed_requests(64)

    async def scenario():
        limits = httpx.Limits(max_connections=64)
        async with httpx.AsyncClient(base_url=tiny_server.url, timeout=120, limits=limits, trust_env=False) as client:
            # Another salt each round: the second must not live on the first one's cache.
            alone = [await _answer(client, path, {**body, "cache_salt": "alone"}) for path, body in requests]
            together = await asyncio.gather(
                *(_answer(client, path, {**body, "cache_salt": "together"}) for path, body in requests)
            )
        return alone, together

    alone, together = asyncio.run(scenario())
    assert [len(ids) for _, ids, _ in alone] == [body["max_tokens"] for _, body in requests]
    assert {len(ids) for _, ids, _ in alone} >= {1, 200}
    assert len({tuple(ids) for _, ids, _ in alone}) > 50
    for one, other, (path, body) in zip(alone, together, requests, strict=True):
        assert one == other, (path, body)


def _wait_until_idle(server, seconds: float) -> None:
    """Fails unless the engine holds nothing any more within `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        gauges = server.gauges()
        if all(gauges[name] == value for name, value in IDLE.items()):
            return
        assert time.monotonic() < deadline, {name: gauges[name] for name in IDLE}
        time.sleep(0.05)


@pytest.mark.covers("ENG-06", "OBS-04")
def test_clients_that_leave_give_everything_back(server):
    long = {"max_tokens": 900, "ignore_eos": True}

    async def scenario():
        tasks = []
        async with httpx.AsyncClient(base_url=server.url, timeout=60, trust_env=False) as client:
            seen = [asyncio.Event() for _ in range(20)]

            async def read(number: int) -> None:
                body = {"prompt": f"Story {number}:", "stream": True, **long}
                async with client.stream("POST", "/v1/completions", json=body) as response:
                    async for _ in response.aiter_bytes():
                        seen[number].set()

            tasks += [asyncio.create_task(read(number)) for number in range(20)]
            tasks += [
                asyncio.create_task(client.post("/v1/completions", json={"prompt": f"Poem {number}:", **long}))
                for number in range(5)
            ]
            await asyncio.wait_for(asyncio.gather(*(event.wait() for event in seen)), 30)
            busy = await asyncio.to_thread(server.gauges)
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)  # none had come to its end
        return busy

    _wait_until_idle(server, 20)
    before = server.gauges()["core_generation_tokens_total"]
    busy = asyncio.run(scenario())
    assert busy["core_num_requests_running"] + busy["core_num_requests_waiting"] >= 20
    assert busy["core_kv_cache_usage_perc"] > 0
    _wait_until_idle(server, 20)
    assert server.gauges()["core_generation_tokens_total"] - before < 25 * 900 / 2
    with server.http() as http:
        assert http.get("/ready").status_code == 200
        answer = http.post("/v1/completions", json={"prompt": "The capital of France is", "temperature": 0})
        assert "Paris" in answer.json()["choices"][0]["text"]


@pytest.mark.covers("ENG-01")
def test_a_prompt_that_comes_again_is_found_in_the_cache(tiny_server):
    body = {"prompt": [3 + (i * 37) % 300 for i in range(300)], "max_tokens": 16, "temperature": 0, "ignore_eos": True}

    def answer(**changes):
        with tiny_server.http() as http:
            data = http.post("/v1/completions", json={**body, **changes}).json()
        return data["choices"][0]["text"], data["usage"]["prompt_tokens_details"]["cached_tokens"]

    first, second = answer(), answer()
    assert first[1] == 0
    assert 200 <= second[1] < 300  # whole blocks, and at least one token is left to compute
    assert second[0] == first[0]
    salted = answer(cache_salt="tenant-a")
    assert salted == (first[0], 0)
    assert answer(cache_salt="tenant-b")[1] == 0
    assert answer(cache_salt="tenant-a")[1] == second[1]
    assert tiny_server.gauges()["core_prompt_tokens_cached_total"] >= 2 * second[1]
