"""What answers say of their tokens, and when they may end, over a tiny model: offline, OpenAI's APIs, other routes."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from core_plugin_generate.manifest import GENERATE
from core_plugin_generate.routes import GenerateRoutes
from core_plugin_ollama.manifest import OLLAMA
from core_plugin_ollama.routes import OllamaRoutes
from core_plugin_openai import manifest as openai
from core_plugin_openai.responses.routes import ResponsesRoutes
from core_plugin_openai.routes import OpenAIRoutes

from core import LLM, AsyncLLM, SamplingParams
from core.config.resolved import Options
from core_testing.served import served_app
from core_testing.tinymodels import tiny_llama

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
SETTINGS = {"dtype": "float32", "num_blocks": 200, "max_num_seqs": 16}
MESSAGES = [{"role": "user", "content": "the engine"}]
PROMPT = [5, 9, 14, 3, 3, 77, 8]
RANDOM = {"temperature": 1.5, "seed": 3}  # a model that knows nothing: most tokens are parts of characters


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(tiny_llama(tmp_path_factory.mktemp("answers") / "llama"))


@pytest.fixture(scope="module")
def offline(path):
    with LLM(path, **SETTINGS) as made:

        def first(**params):
            return made.generate([{"prompt_token_ids": PROMPT}], SamplingParams(**params))[0].outputs[0]

        yield first


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
    """Send a body and return the answer: JSON, or what its server-sent events or lines hold."""
    plugins = {
        openai.OPENAI: OpenAIRoutes({}),
        openai.RESPONSES: ResponsesRoutes({}),
        OLLAMA: OllamaRoutes({}),
        GENERATE: GenerateRoutes({}),
    }
    app = served_app(llm, Options(), plugins)

    def send(path, ignored="", **body):
        async def go():
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.post(path, json=body)

        answer = runner.run(go())
        assert answer.status_code == 200, answer.text
        assert set(answer.headers.get("x-core-ignored-fields", "").split(", ")) == {ignored}
        if not body.get("stream"):
            return answer.json()
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines()]
        return [json.loads(line) for line in lines if line.startswith("{")]

    return send


def text_of(entries):
    """Return the text that the bytes of tokens are, and see that parts of characters are shown as they are."""
    parts = [entry["bytes"] for entry in entries if "\ufffd" in entry["token"]]
    assert parts and list("\ufffd".encode()) not in parts
    return b"".join(bytes(entry["bytes"]) for entry in entries).decode("utf-8", "replace")


@pytest.mark.parametrize("text", ["Größe 漢字 🙂👩‍👩‍👧", "\ufffd é"])
def test_bytes_of_tokens_are_the_bytes_of_the_text(post, text):
    asked = {"structured_outputs": {"choice": [text]}, "max_tokens": 99, "logprobs": True}
    (choice,) = post(CHAT, messages=MESSAGES, **asked)["choices"]
    assert choice["message"]["content"] == text
    assert b"".join(bytes(entry["bytes"]) for entry in choice["logprobs"]["content"]) == text.encode()
    answer = post("/completion", prompt="a", grammar=f'root ::= "{text}"', n_predict=99, n_probs=1)
    assert b"".join(bytes(entry["bytes"]) for entry in answer["completion_probabilities"]) == text.encode()


@pytest.mark.parametrize("special", [False, True], ids=["special tokens left out", "special tokens shown"])
def test_bytes_of_tokens_are_the_bytes_of_a_chat(llm, post, special):
    some = llm.tokenizer.special_ids
    asked = {
        "messages": MESSAGES, "max_tokens": 60, "logprobs": True, "top_logprobs": 2, **RANDOM, "ignore_eos": True,
        "logit_bias": {str(token): 6.0 for token in some}, "skip_special_tokens": not special, "return_token_ids": True,
    }  # fmt: skip
    (choice,) = post(CHAT, **asked)["choices"]
    entries = choice["logprobs"]["content"]
    assert set(choice["token_ids"]) & some
    assert text_of(entries) == choice["message"]["content"]
    streamed = [choice for event in post(CHAT, **asked, stream=True) for choice in event["choices"]]
    assert [one for choice in streamed if choice["logprobs"] for one in choice["logprobs"]["content"]] == entries
    named = post(CHAT, **asked, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]["content"]
    assert [one["bytes"] for one in named] == [one["bytes"] for one in entries]
    own = {f"token_id:{token}": entry["bytes"] for token, entry in zip(choice["token_ids"], entries, strict=True)}
    for one in (top for entry in named for top in entry["top_logprobs"]):
        assert own.setdefault(one["token"], one["bytes"]) == one["bytes"]


def test_the_token_that_ends_a_chat_adds_no_bytes(llm, post):
    asked = {"messages": MESSAGES, "max_tokens": 30, "min_tokens": 20, "logprobs": True, **RANDOM}
    (choice,) = post(CHAT, **asked, logit_bias={str(end): 100.0 for end in llm.tokenizer.eos_ids})["choices"]
    assert choice["finish_reason"] == "stop" and len(choice["logprobs"]["content"]) == 21
    assert text_of(choice["logprobs"]["content"]) == choice["message"]["content"]


def test_bytes_of_tokens_are_the_bytes_of_a_response(post):
    fields = {"input": "the engine", "max_output_tokens": 40, "include": ["message.output_text.logprobs"], **RANDOM}
    part = post(RESPONSES, **fields)["output"][0]["content"][0]
    assert text_of(part["logprobs"]) == part["text"]


def test_bytes_of_tokens_are_the_bytes_of_other_apis_answers(llm, post):
    answer = post("/completion", prompt="the engine", n_predict=40, n_probs=2, **RANDOM)
    assert text_of(answer["completion_probabilities"]) == answer["content"]
    options = {"num_predict": 40, **RANDOM}
    answer = post("/api/chat", model=llm.model_name, messages=MESSAGES, options=options, logprobs=True, stream=False)
    assert text_of(answer["logprobs"]) == answer["message"]["content"]


@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_says_the_prompts_tokens_once(post, n):
    fields = {"max_tokens": 4, "stream": True, "return_token_ids": True, "return_prompt_text": True, "n": n}
    events = post(CHAT, messages=MESSAGES, **fields, temperature=0)
    assert len(events) > 2 * n
    assert [event for event in events if "prompt_token_ids" in event or "prompt_text" in event] == events[:1]
    choices = [
        choice for event in post(COMPLETIONS, prompt=PROMPT, **fields, temperature=0) for choice in event["choices"]
    ]
    told = [choice["index"] for choice in choices if "prompt_token_ids" in choice]
    assert sorted(told) == list(range(n))  # each choice says what belongs to its prompt, once


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"continuous_usage_stats": True}, []),
        ({"include_usage": False, "continuous_usage_stats": True}, []),
        ({"continuous_usage_stats": False}, []),
        ({"include_usage": True}, ["last", "null"]),
        ({"include_usage": True, "continuous_usage_stats": True}, ["last", "so far"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("route", [CHAT, COMPLETIONS])
def test_usage_in_a_stream_needs_include_usage(post, route, options, seen):
    prompt = {"messages": MESSAGES} if route == CHAT else {"prompt": PROMPT}
    ignored = "stream_options.continuous_usage_stats" if options.get("continuous_usage_stats") and not seen else ""
    events = post(route, ignored, **prompt, max_tokens=3, stream=True, stream_options=options)
    found = set()
    for event in events:
        if "usage" in event:
            found.add("null" if event["usage"] is None else "so far" if event["choices"] else "last")
    assert sorted(found) == seen


def test_log_probabilities_of_tokens_by_id_are_these_and_the_sampled_ones(offline, post):
    fields = {"max_tokens": 3, "temperature": 0, "return_tokens_as_token_ids": True, "return_token_ids": True}
    plain = post(COMPLETIONS, prompt=PROMPT, **fields)["choices"][0]["token_ids"]
    for asked in ([7, 3], [plain[0], 7, 7]):
        names = {f"token_id:{token}" for token in asked}
        for count in ({}, {"logprobs": 0}, {"logprobs": 5}):
            scores = post(COMPLETIONS, prompt=PROMPT, **fields, **count, logprob_token_ids=asked)["choices"][0][
                "logprobs"
            ]
            for token, top in zip(plain, scores["top_logprobs"], strict=True):
                assert top.keys() == names | {f"token_id:{token}"}
        for count in ({}, {"top_logprobs": 0}, {"top_logprobs": 5}):
            wish = {**fields, "logprobs": True, **count, "logprob_token_ids": asked}
            (choice,) = post(CHAT, messages=MESSAGES, **wish)["choices"]
            for token, entry in zip(choice["token_ids"], choice["logprobs"]["content"], strict=True):
                shown = [one["token"] for one in entry["top_logprobs"]]
                assert set(shown) == names | {f"token_id:{token}"} and len(set(shown)) == len(shown)
                assert entry["logprob"] == max(one["logprob"] for one in entry["top_logprobs"])
    found = offline(temperature=0, max_tokens=3, logprobs=5, logprob_token_ids=[7, 3])
    assert [set(position) for position in found.logprobs] == [{token, 7, 3} for token in plain]
    assert [position[token].rank for token, position in zip(plain, found.logprobs, strict=True)] == [1, 1, 1]


@pytest.mark.parametrize("ignore", [False, True], ids=["", "ignore_eos"])
def test_no_end_comes_before_the_minimum(offline, llm, post, ignore):
    """Ends are so likely that nothing else is sampled, unless they are held back."""
    (end, *_), stop = llm.tokenizer.eos_ids, 40
    bias = {end: 100.0, stop: 99.0}
    count = 8 if ignore else 6
    common = {"temperature": 0, "ignore_eos": ignore, "logit_bias": bias, "stop_token_ids": [stop]}
    ids = offline(max_tokens=8, min_tokens=5, **common).token_ids
    fields = {"max_tokens": 8, "min_tokens": 5, "return_token_ids": True, **common}
    (choice,) = post(COMPLETIONS, prompt=PROMPT, **fields)["choices"]
    assert choice["token_ids"] == ids
    told = post("/generate", input_ids=PROMPT, sampling_params={"max_new_tokens": 8, "min_new_tokens": 5, **common})
    assert told["output_ids"] == ids
    assert not {end, stop} & set(ids[:5])
    assert ids[5:] == [end] * (count - 5)
    assert choice["finish_reason"] == ("length" if ignore else "stop")


@pytest.mark.parametrize("ignore", [False, True], ids=["", "ignore_eos"])
def test_a_minimum_that_leaves_nothing_to_sample_is_an_error(offline, llm, ignore):
    end = llm.tokenizer.eos_ids[0]
    found = offline(max_tokens=8, min_tokens=5, ignore_eos=ignore, allowed_token_ids=[end])
    assert found.finish_reason == "error" and found.error.startswith("CORE-E122")


@pytest.mark.parametrize("ignore", [False, True], ids=["", "ignore_eos"])
def test_a_grammar_that_has_ended_ends_the_text_below_the_minimum(offline, ignore):
    found = offline(max_tokens=8, min_tokens=5, ignore_eos=ignore, grammar={"choice": ["a"]})
    assert (found.text, found.finish_reason) == ("a", "stop")
