"""The page, and the native routes of SGLang and llama.cpp, over real HTTP beside each other and behind a key."""

from __future__ import annotations

import json
import re
import time

import httpx
import pytest

KEY = {"Authorization": "Bearer secret"}
FLAGS = ("--threads", "1", "--dtype", "float32", "--served-model-name", "scripted", "--max-model-len", "1024")
FLAGS += ("--route", "webui", "--route", "ollama", "--route", "generate", "--api-key", "secret")


@pytest.fixture(scope="module")
def server(launch, scripted):
    checkpoint, plugin = scripted
    return launch(checkpoint, *FLAGS, PYTHONPATH=plugin).wait_ready()


@pytest.fixture(scope="module")
def http(server):
    with server.http(headers=KEY) as client:
        yield client


@pytest.fixture
def ask(http):
    def ask(path, status=200, **body):
        answer = http.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    return ask


def events(http, path, **body):
    answer = http.post(path, json={**body, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_and_its_files_need_no_key(server):
    with server.http() as nobody:
        page = nobody.get("/")
        assert page.status_code == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
        if "web/build.py" in page.text:
            pytest.skip("the web pages are not built here, because npm was missing")
        names = set(re.findall(r'(?:src|href)="(ui/[\w.]+)"', page.text))
        assert len(names) >= 3
        for name in names:
            file = nobody.get(f"/{name}")
            assert file.status_code == 200 and file.headers["x-content-type-options"] == "nosniff"
            assert file.headers["content-security-policy"] == page.headers["content-security-policy"]
        tag = page.headers["etag"]
        assert nobody.get("/", headers={"if-none-match": tag}).status_code == 304
        assert nobody.head("/").content == b"" and nobody.post("/", json={}).status_code == 401
        for path in ("/ui", "/ui/nothing.js", "/ui/../v1/models", "/api/tags", "/v1/models", "/generate", "/props"):
            assert nobody.get(path).status_code == 401, path
    assert re.search(r"without a key: / /ui/\* \(\d+\)", server.stdout) and "routes of ollama" in server.stdout


def test_the_page_may_load_nothing_from_elsewhere_and_run_nothing_inline(server):
    with server.http() as nobody:
        page = nobody.get("/")
    policy = dict(part.strip().partition(" ")[::2] for part in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert page.headers["x-frame-options"] == "DENY"
    assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|style=|https?://", page.text)


def test_the_web_page_has_the_root_and_ollama_the_rest(http):
    assert "Ollama" not in http.get("/").text
    assert http.get("/api/tags").json()["models"][0]["name"] == "scripted"


# -- SGLang ------------------------------------------------------------------------------------------------------------


def test_generate(ask):
    params = {"max_new_tokens": 40, "temperature": 0, "top_k": -1}
    answer = ask("/generate", text="hello<|emit|>", sampling_params=params, rid="mine")
    assert answer["text"] == "hello" and len(answer["output_ids"]) == 6
    meta = answer["meta_info"]
    assert meta["id"] == "mine" and 0 < meta.pop("e2e_latency") < 60
    assert meta["finish_reason"] == {"type": "stop", "matched": answer["output_ids"][-1]}
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == (6, 6, 0)
    cut = ask("/generate", text="hello<|emit|>", sampling_params={"max_new_tokens": 3})
    assert (cut["text"], cut["meta_info"]["finish_reason"]) == ("hel", {"type": "length", "length": 3})
    stopped = ask("/generate", text="hello<|emit|>", sampling_params={"stop": ["l"], "no_stop_trim": True})
    assert (stopped["text"], stopped["meta_info"]["finish_reason"]) == ("hel", {"type": "stop", "matched": "l"})
    ids = [97, 98, answer["output_ids"][-1] + 2]
    assert len(ask("/generate", input_ids=ids, sampling_params={"max_new_tokens": 1})["output_ids"]) == 1


def test_generate_of_many(ask):
    texts = [f"{text}<|emit|>" for text in ("one", "two", "three")]
    params = [{"max_new_tokens": limit} for limit in (2, 50, 50)]
    answers = ask("/generate", text=texts, sampling_params=params, rid=["a", "b", "c"])
    assert [answer["text"] for answer in answers] == ["on", "two", "three"]
    assert [answer["meta_info"]["id"] for answer in answers] == ["a", "b", "c"]
    assert [answer["meta_info"]["prompt_tokens"] for answer in answers] == [4, 4, 6]
    twice = ask("/generate", text="ab<|emit|>", sampling_params={"n": 2})
    assert [answer["text"] for answer in twice] == ["ab", "ab"]


def test_generate_streams_everything_so_far(http):
    *parts, last, done = events(http, "/generate", text="abc<|emit|>", sampling_params={"max_new_tokens": 9})
    assert done == "[DONE]" and last["text"] == "abc" and last["meta_info"]["finish_reason"]["type"] == "stop"
    assert all("abc".startswith(part["text"]) and part["meta_info"]["finish_reason"] is None for part in parts)
    many = events(http, "/generate", text=["ab<|emit|>", "cd<|emit|>"])
    final = {part["index"]: part["text"] for part in many[:-1] if part["meta_info"]["finish_reason"]}
    assert final == {0: "ab", 1: "cd"}


def test_generate_tells_logprobs_and_holds_to_grammars(ask):
    fields = {"return_logprob": True, "top_logprobs_num": 2, "logprob_start_len": 1, "return_text_in_logprobs": True}
    meta = ask("/generate", text="ab<|emit|>", **fields)["meta_info"]
    assert [text for _, _, text in meta["output_token_logprobs"][:2]] == ["a", "b"]
    assert all(len(top) == 2 and top[0][0] >= top[1][0] for top in meta["output_top_logprobs"])
    assert meta["output_top_logprobs"][0][0] == meta["output_token_logprobs"][0]
    assert [text for _, _, text in meta["input_token_logprobs"]] == ["b", "<|emit|>"]
    plain = ask("/generate", text="ab<|emit|>", return_logprob=True)["meta_info"]
    assert plain["output_token_logprobs"][0][2] is None and "output_top_logprobs" not in plain
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    for given in (schema, json.dumps(schema)):
        answer = ask("/generate", text='{"n": 7}<|emit|>', sampling_params={"json_schema": given})
        assert json.loads(answer["text"]) == {"n": 7}
    assert ask("/generate", text="2024<|emit|>", sampling_params={"regex": "[0-9]{2}"})["text"] == "20"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "either text or input_ids"),
        ({"text": "a", "input_ids": [1]}, "either text or input_ids"),
        ({"text": []}, "empty"),
        ({"input_ids": [10**6]}, "input_ids: token ids are integers"),
        ({"text": "a", "image_data": "x"}, "image_data: this server reads text only"),
        ({"text": "a", "sampling_params": {"stop_regex": "x"}}, "sampling_params.stop_regex"),
        ({"text": "a", "sampling_params": {"max_new_tokens": "many"}}, "sampling_params.max_new_tokens"),
        ({"text": "a", "sampling_params": {"temperature": -1}}, "temperature"),
        ({"text": ["a", "b"], "sampling_params": [{}]}, "1 entries for 2 prompts"),
        ({"text": "x" * 2000}, "more than the model's"),
    ],
)
def test_generate_refuses_in_a_sentence(ask, body, said):
    assert said in ask("/generate", 400, **body)["error"]["message"]


# -- llama.cpp ---------------------------------------------------------------------------------------------------------


def test_completion(ask):
    answer = ask("/completion", prompt="hello<|emit|>", n_predict=40, temperature=0, cache_prompt=True)
    assert (answer["content"], answer["stop"], answer["stop_type"], answer["stopping_word"]) == (
        "hello",
        True,
        "eos",
        "",
    )
    assert (answer["tokens_predicted"], answer["tokens_evaluated"], answer["tokens"]) == (6, 6, [])
    assert answer["generation_settings"]["n_ctx"] == 1024 and answer["prompt"] == "hello<|emit|>"
    timings = answer["timings"]
    assert timings["predicted_n"] == 6 and timings["prompt_n"] + timings["cache_n"] == 6 and timings["prompt_ms"] > 0
    cut = ask("/completion", prompt="hello<|emit|>", n_predict=2, return_tokens=True)
    assert (cut["content"], cut["stop_type"], len(cut["tokens"])) == ("he", "limit", 2)
    word = ask("/completions", prompt=["hel", *cut["tokens"], "lo<|emit|>"], stop=["el"])
    assert (word["content"], word["stop_type"], word["stopping_word"]) == ("h", "word", "el")
    assert ask("/completion", prompt="a<|emit|>")["content"] == "a"
    assert ask("/completion", prompt="a<|emit|>", n_predict=0)["content"] == ""


def test_completion_of_many(ask):
    answers = ask("/completion", prompt=["a<|emit|>", {"prompt_string": "b<|emit|>"}, [99, "d<|emit|>"]], n_cmpl=2)
    contents = [answer["content"] for answer in answers]
    assert contents[:4] == ["a", "a", "b", "b"] and contents[4] == contents[5] and contents[4].endswith("d")
    assert [answer["index"] for answer in answers] == [0, 1, 2, 3, 4, 5]


def test_completion_streams_what_is_new(http):
    *parts, last = events(http, "/completion", prompt="abc<|emit|>", n_probs=1)
    assert "".join(part["content"] for part in parts) == "abc" and last["content"] == ""
    assert [part["stop"] for part in parts] == [False] * len(parts) and last["stop"] and last["stop_type"] == "eos"
    assert sum(len(part["tokens"]) for part in parts) == last["tokens_predicted"] == 4
    assert parts[0]["completion_probabilities"][0]["token"] == "a" and "timings" in last


def test_completion_tells_probabilities_and_takes_biases(ask):
    (first, *_) = ask("/completion", prompt="ab<|emit|>", n_probs=3)["completion_probabilities"]
    assert first["token"] == "a" and first["bytes"] == [97] and len(first["top_logprobs"]) == 3
    assert first["top_logprobs"][0]["id"] == first["id"] and first["logprob"] > -0.1
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert json.loads(ask("/completion", prompt='{"n": 7}<|emit|>', json_schema=schema)["content"]) == {"n": 7}
    assert ask("/completion", prompt="xy<|emit|>", logit_bias=[["q", 5], [first["id"], False]])["content"] == "xy"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "prompt must be a text"),
        ({"prompt": ["a", ""]}, "must be texts or token ids"),
        ({"prompt": "a", "mirostat": 2}, "mirostat: this sampler"),
        ({"prompt": "a", "typical_p": 0.5}, "typical_p: this sampler"),
        ({"prompt": "a", "logit_bias": [[1]]}, "logit_bias has pairs"),
        ({"prompt": "a", "n_predict": "many"}, "n_predict: "),
        ({"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}}, "text only"),
        ({"prompt": "a", "temperature": -1}, "temperature"),
    ],
)
def test_completion_refuses_in_a_sentence(ask, body, said):
    error = ask("/completion", 400, **body)["error"]
    assert said in error["message"] and (error["code"], error["type"]) == (400, "invalid_request_error")


def test_what_the_model_is(http, server):
    assert http.get("/get_model_info").json()["is_generation"] is True
    assert http.get("/props").json()["default_generation_settings"] == {"n_ctx": 1024}
    with server.http() as nobody:
        refused = nobody.get("/props")
    assert refused.status_code == 401 and refused.json()["error"]["type"] == "authentication_error"


LONG = {"ignore_eos": True, "max_new_tokens": 900}
LEFT = {
    "/generate": (2700, {"text": ["ab<|emit|>"] * 3, "sampling_params": LONG}),
    "/completion": (900, {"prompt": "ab<|emit|>", "ignore_eos": True, "n_predict": 900}),
    "/api/generate": (501, {"prompt": "a" * 500, "stream": False}),
}


@pytest.mark.parametrize("path", LEFT)
def test_a_client_that_goes_ends_its_generations(server, http, path):
    whole, body = LEFT[path]

    def tokens():
        return float(re.search(r"core_generation_tokens_total\{[^}]*\} ([\d.e+]+)", http.get("/metrics").text)[1])

    before = tokens()
    with server.http(headers=KEY) as leaving, pytest.raises(httpx.ReadTimeout):
        leaving.post(path, json=body, timeout=httpx.Timeout(10, read=0.03))
    deadline = time.monotonic() + 10
    while (load := http.get("/load").json()) != {"server_load": 0, "running": 0, "waiting": 0}:
        assert time.monotonic() < deadline, f"generations go on: {load}"
        time.sleep(0.02)
    assert tokens() - before < whole
