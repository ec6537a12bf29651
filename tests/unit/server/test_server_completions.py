"""Plain completions: four forms of prompt, echo, log-probabilities, many sequences."""

import json

import pytest

PATH = "/v1/completions"


def events(response):
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_whole_answer(api):
    body = api.post(PATH, {"prompt": "ab"}).json()
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    ]
    assert body["usage"]["prompt_tokens"] == 3
    assert body["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("ab", [[256, 97, 98]]),
        (["a", "b"], [[256, 97], [256, 98]]),
        ([97, 98], [[97, 98]]),
        ([[97], [98, 99]], [[97], [98, 99]]),
    ],
)
def test_forms_of_prompt(api, llm, prompt, ids):
    body = api.post(PATH, {"prompt": prompt}).json()
    assert sorted(request["ids"] for request in llm.requests) == ids
    assert [choice["index"] for choice in body["choices"]] == list(range(len(ids)))
    assert body["usage"]["prompt_tokens"] == sum(map(len, ids))
    assert len({request["id"] for request in llm.requests}) == len(ids)


def test_without_special_tokens(api, llm):
    api.post(PATH, {"prompt": "a", "add_special_tokens": False})
    assert llm.requests[0]["ids"] == [97]


def test_choices_of_many_prompts_and_sequences(build, fake):
    api = build(fake(reply=["x", "yy"]))
    body = api.post(PATH, {"prompt": ["a", "b", "c"], "n": 2}).json()
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == list(enumerate(["x", "yy"] * 3))
    assert body["usage"]["completion_tokens"] == 9


def test_default_length(api, llm):
    api.post(PATH, {"prompt": "a"})
    assert llm.requests[0]["params"].max_tokens == 16


@pytest.mark.parametrize("extra", [{}, {"echo": True}, {"logprobs": 2}, {"echo": True, "logprobs": 1}])
def test_stream_says_what_the_whole_answer_says(build, fake, extra):
    api = build(fake(reply=["one", "second"]))
    request = {"prompt": ["ab", "c"], "n": 2, "return_token_ids": True, **extra}
    whole = api.post(PATH, request).json()
    chunks = events(api.post(PATH, {**request, "stream": True, "stream_options": {"include_usage": True}}))
    for choice in whole["choices"]:
        mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
        assert "".join(c["text"] for c in mine) == choice["text"]
        assert [token for c in mine for token in c["token_ids"]] == choice["token_ids"]
        assert mine[0]["prompt_token_ids"] == choice["prompt_token_ids"]
        assert [c["finish_reason"] for c in mine][-1] == choice["finish_reason"]
        for name in choice["logprobs"] or ():
            assert [x for c in mine if c["logprobs"] for x in c["logprobs"][name]] == choice["logprobs"][name]
    assert chunks[-1]["usage"] == whole["usage"]


def test_echo_with_logprobs_scores_the_prompt(api, llm):
    choice = api.post(PATH, {"prompt": "ab", "echo": True, "logprobs": 1, "max_tokens": 2}).json()["choices"][0]
    assert choice["text"] == "abHe"
    scores = choice["logprobs"]
    assert scores["tokens"] == ["<256>", "a", "b", "H", "e"]
    assert scores["token_logprobs"] == [None, -0.5, -0.5, -0.5, -0.5]
    assert scores["top_logprobs"][0] is None
    assert set(scores["top_logprobs"][3]) == {"H"}
    assert scores["text_offset"] == [0, 5, 6, 7, 8]
    assert llm.requests[0]["params"].prompt_logprobs == 1


def test_scoring_a_prompt_without_output(api):
    body = api.post(PATH, {"prompt": "ab", "echo": True, "logprobs": 0, "max_tokens": 0}).json()
    choice = body["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("ab", "length")
    assert len(choice["logprobs"]["tokens"]) == 3
    assert body["usage"]["completion_tokens"] == 0


def test_echo_of_token_ids_is_decoded(api):
    assert api.post(PATH, {"prompt": [97, 98], "echo": True}).json()["choices"][0]["text"] == "abHello"


def test_prompt_logprobs(api):
    choice = api.post(PATH, {"prompt": "ab", "prompt_logprobs": 0}).json()["choices"][0]
    assert choice["prompt_logprobs"] == [
        None,
        {"97": {"logprob": -0.5, "rank": 1, "decoded_token": "a"}},
        {"98": {"logprob": -0.5, "rank": 1, "decoded_token": "b"}},
    ]


def test_minus_infinity_is_a_number(build, fake, monkeypatch):
    llm = fake()
    scores = llm._scores

    def impossible(token, count):
        found = scores(token, count)
        found[token].logprob = float("-inf")
        return found

    monkeypatch.setattr(llm, "_scores", impossible)
    choice = build(llm).post(PATH, {"prompt": "a", "logprobs": 0, "max_tokens": 1}).json()["choices"][0]
    assert choice["logprobs"]["token_logprobs"] == [-9999.0]


def test_one_failing_prompt_ends_the_others(build, fake, until):
    llm = fake(hold_at=1)
    api = build(llm)
    body = api.post(PATH, {"prompt": ["ok", "x" * 600]})
    assert body.status_code == 400
    assert body.json()["error"]["code"] == "context_length_exceeded"
    assert llm.running == 0
    assert len(llm.aborted) == 1


def test_a_stream_that_fails_late_says_so(build, fake, engine_error):
    api = build(fake(fail_at=2, failure=engine_error))
    response = api.post(PATH, {"prompt": "a", "stream": True})
    assert response.status_code == 200
    parts = [part for part in response.text.split("\n\n") if part]
    assert parts[-1] == "data: [DONE]"
    kind, _, data = parts[-2].partition("\n")
    assert kind == "event: error"
    error = json.loads(data.removeprefix("data: "))["error"]
    assert error["type"] == "service_unavailable_error"
    assert error["code"] == "CORE-E110"


@pytest.mark.parametrize("stream", [False, True])
def test_a_row_that_fails_in_the_engine(build, fake, stream):
    llm = fake(reply="H", row_error="NaN at 0xdeadbeef in /srv/a/b.py")
    response = build(llm).post(PATH, {"prompt": "a", "stream": stream})
    assert response.status_code == 500
    error = response.json()["error"]
    assert error["type"] == "server_error"
    assert "NaN" in error["message"]
    assert "0xdead" not in error["message"]
    assert "/srv" not in error["message"]
