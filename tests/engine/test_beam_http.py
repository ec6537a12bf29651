"""Beam search beside other requests: `AsyncLLM` and the two routes, with the offline search as the reference."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from core_plugin_openai.manifest import OPENAI
from core_plugin_openai.routes import OpenAIRoutes

from core import LLM, BeamSearchParams
from core.api.sampling_params import SamplingParams
from core.config.resolved import Options
from core.frontend.async_llm import AsyncLLM
from core.frontend.beams.outputs import BeamRules
from core.frontend.request import GenerationRequest
from core_testing.served import served_app
from core_testing.tinymodels import tiny_llama

PROMPT = [5, 9, 14, 3, 3, 77, 8]
TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SETTINGS = {"dtype": "float32", "num_blocks": 200, "max_num_seqs": 8, "chat_template": TEMPLATE}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(tiny_llama(tmp_path_factory.mktemp("beams") / "llama"))


@pytest.fixture(scope="module")
def offline(path):
    with LLM(path, **SETTINGS) as made:
        yield made


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def llm(path, runner):
    made = runner.run(AsyncLLM.start(path, in_process=True, **SETTINGS))
    yield made
    runner.run(made.close())


@pytest.fixture(scope="module")
def post(llm, runner):
    app = served_app(llm, Options(), {OPENAI: OpenAIRoutes({})})

    def send(path, body):
        async def go():
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.post(path, json={"use_beam_search": True, "max_tokens": 6, **body})

        return runner.run(go())

    return send


def test_choices_are_those_of_the_offline_search(offline, post):
    params = BeamSearchParams(beam_width=3, max_tokens=6, length_penalty=0.5, early_stopping=True, logprobs=2)
    expected = offline.beam_search([{"prompt_token_ids": PROMPT}, "the engine"], params)
    fields = {"n": 3, "length_penalty": 0.5, "early_stopping": True, "logprobs": 2, "return_token_ids": True}
    for found, prompt in zip(expected, (PROMPT, "the engine"), strict=True):
        answer = post(COMPLETIONS, {"prompt": prompt, **fields, "temperature": 0.7})
        body = answer.json()
        assert answer.headers["x-core-ignored-fields"] == "temperature"
        assert [one["token_ids"] for one in body["choices"]] == [one.token_ids for one in found.outputs]
        assert [one["text"] for one in body["choices"]] == [one.text for one in found.outputs]
        assert body["usage"]["completion_tokens"] == sum(len(one.token_ids) for one in found.outputs)
        assert body["usage"]["prompt_tokens"] == len(found.prompt_token_ids)
        for choice, one in zip(body["choices"], found.outputs, strict=True):
            assert sum(choice["logprobs"]["token_logprobs"]) == pytest.approx(one.cumulative_logprob, abs=1e-4)
            assert all(1 <= len(top) <= 3 for top in choice["logprobs"]["top_logprobs"])
    scores = [one.cumulative_logprob / len(one.token_ids) ** 0.5 for one in expected[0].outputs]
    assert scores == sorted(scores, reverse=True)


def test_chats(offline, post):
    found = offline.beam_search("the engine ", BeamSearchParams(beam_width=2, max_tokens=6))[0].outputs
    asked = {
        "messages": [{"role": "user", "content": "the engine"}],
        "n": 2,
        "logprobs": True,
        "return_token_ids": True,
    }
    answer = post(CHAT, asked).json()
    choices, ids = answer["choices"], answer["prompt_token_ids"]
    found = offline.beam_search({"prompt_token_ids": ids}, BeamSearchParams(beam_width=2, max_tokens=6))[0].outputs
    assert [one["message"]["content"] for one in choices] == [one.text for one in found]
    assert [len(one["logprobs"]["content"]) for one in choices] == [6, 6]
    (one,) = post(CHAT, {**asked, "n": 1, "top_logprobs": 5}).json()["choices"]
    for entry in one["logprobs"]["content"]:
        told = [other["logprob"] for other in entry["top_logprobs"]]
        assert len(told) == 5 and told == sorted(told, reverse=True) and entry["logprob"] <= told[0]
    stream = post(CHAT, {**asked, "stream": True}).text
    assert stream.count('"finish_reason":"length"') == 2 and stream.endswith("data: [DONE]\n\n")


def test_stop_texts_and_tokens_end_sequences(offline, post):
    plain = post(COMPLETIONS, {"prompt": PROMPT, "n": 1}).json()["choices"][0]["text"]
    stop = {"prompt": PROMPT, "stop": [plain[len(plain) // 2 :][:2], "never seen"], "return_token_ids": True}
    for fields in (stop, {**stop, "include_stop_str_in_output": True}):
        (found,) = post(COMPLETIONS, {**fields, "early_stopping": True}).json()["choices"]
        greedy = post(COMPLETIONS, {**fields, "use_beam_search": False, "temperature": 0}).json()["choices"]
        assert [found] == greedy and found["stop_reason"] == stop["stop"][0]
    params = BeamSearchParams(beam_width=1, max_tokens=6)
    ids = offline.beam_search({"prompt_token_ids": PROMPT}, params)[0].outputs[0].token_ids
    fields = {"prompt": PROMPT, "stop_token_ids": [ids[2]], "return_token_ids": True}
    ended = post(COMPLETIONS, fields).json()["choices"][0]
    first = ids.index(ids[2]) + 1
    assert (ended["token_ids"], ended["finish_reason"], ended["stop_reason"]) == (ids[:first], "stop", ids[2])


@pytest.mark.parametrize("penalty", [1e5, -1e5])
def test_extreme_penalties_decide_by_length(post, penalty):
    choices = post(COMPLETIONS, {"prompt": PROMPT, "n": 2, "length_penalty": penalty}).json()["choices"]
    assert [one["finish_reason"] for one in choices] == ["length", "length"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream": True}, "stream"),
        ({"n": 100}, "n"),
        ({"max_tokens": 10**6}, "max_tokens"),
        ({"early_stopping": "maybe"}, "early_stopping"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"repetition_penalty": 1.5}, "repetition_penalty"),
        ({"logit_bias": {"1": 2}}, "logit_bias"),
        ({"min_tokens": 2}, "min_tokens"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"vllm_xargs": {"a": 1}}, "vllm_xargs"),
        ({"use_beam_search": False, "length_penalty": 2}, "length_penalty"),
        ({"use_beam_search": False, "early_stopping": True}, "early_stopping"),
    ],
    ids=str,
)
def test_what_does_not_go_together(post, fields, param):
    answer = post(COMPLETIONS, {"prompt": PROMPT, **fields})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"].partition(".")[0] == param


def test_rendering_says_that_there_is_no_one_request(post):
    error = post(f"{COMPLETIONS}/render", {"prompt": PROMPT}).json()["error"]
    assert error["param"] == "use_beam_search"


def test_requests_in_python(offline, llm, runner):
    params = BeamSearchParams(beam_width=2, max_tokens=4)
    expected = offline.beam_search("the engine", params)[0]

    async def both():
        asked = GenerationRequest(
            prompt="the engine", params=SamplingParams(n=2, max_tokens=4), beams=BeamRules(), request_id="mine"
        )
        fed = []
        assert await (await llm.submit(asked)).feed(lambda output: fed.append(output) or True) is False
        return await llm.beam_search("the engine", params), [one async for one in llm.generate(asked)], fed

    one, (other,), (fed,) = runner.run(both())
    for found in (one, other, fed):
        assert found.prompt == "the engine" and found.finished
        assert [beam.token_ids for beam in found.outputs] == [beam.token_ids for beam in expected.outputs]
    assert other.request_id == "mine"


def test_who_goes_away_leaves_nothing_behind(llm, runner):
    async def leave():
        task = asyncio.create_task(llm.beam_search(PROMPT, BeamSearchParams(beam_width=4, max_tokens=200)))
        while len(llm.request_ids) < 4:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return llm.request_ids

    assert runner.run(leave()) == []


def test_a_client_that_goes_away_ends_its_search(llm, runner):
    body = b'{"prompt": [5, 9, 14], "use_beam_search": true, "n": 4, "max_tokens": 200}'
    headers = [(b"content-type", b"application/json"), (b"host", b"test")]
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": COMPLETIONS}
    scope |= {"raw_path": COMPLETIONS.encode(), "query_string": b"", "headers": headers, "scheme": "http"}
    scope |= {"server": ("test", 80), "client": ("test", 1), "root_path": ""}
    sent = []

    async def call():
        app, given = (
            served_app(llm, Options(), {OPENAI: OpenAIRoutes({})}),
            [{"type": "http.request", "body": body, "more_body": False}],
        )

        async def receive():
            if given:
                return given.pop()
            while len(llm.request_ids) < 4:
                await asyncio.sleep(0)
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        await asyncio.wait_for(app(scope, receive, send), 20)
        return llm.request_ids, app.state.core.pending

    assert runner.run(call()) == ([], 0)
    assert not any(message.get("body") for message in sent)


def test_an_operator_ends_all_of_it(llm, runner):
    async def end():
        search = llm.beam_search(PROMPT, BeamSearchParams(beam_width=3, max_tokens=200), request_id="doomed")
        task = asyncio.create_task(search)
        while len(llm.request_ids) < 3:
            await asyncio.sleep(0)
        await llm.abort(llm.request_ids[0])
        return await task

    found = runner.run(end())
    assert [one.finish_reason for one in found.outputs] == ["abort"] * 3 and not llm.request_ids
    assert all(0 < len(one.token_ids) < 200 for one in found.outputs)
