"""The official client against the real server: what is streamed, what is whole, and what the fields say."""

from __future__ import annotations

import itertools

import pytest

PROMPT = "The three primary colours are"
CHAT = [{"role": "user", "content": "Name three fruits."}]
LENGTH = 12
GREEDY = {"temperature": 0.0, "max_tokens": LENGTH}
SEEDED = {"temperature": 1.0, "seed": 7, "max_tokens": LENGTH}
SALTS = (f"salt-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def client(server):
    with server.openai() as client:
        yield client


@pytest.fixture(scope="module")
def exact(tiny_server):
    with tiny_server.openai() as client:
        yield client


def salted(**body) -> dict:
    """Keep the prefix cache out: a prompt that is found there is computed in another shape, which rounds otherwise."""
    return {"cache_salt": next(SALTS), **body}


def complete(client, prompt, *, extra=None, **fields):
    model = client.models.list().data[0].id
    if fields.get("stream") or (fields.get("echo") and "logprobs" in fields):
        # The client's types have no place for the null finish_reason of a chunk and the null score of a first token,
        # both of which OpenAI's own server sends.
        client = client.copy(_extra_kwargs={"_strict_response_validation": False})
    return client.completions.create(model=model, prompt=prompt, extra_body=salted(**(extra or {})), **fields)


def chat(client, messages, *, extra=None, **fields):
    model = client.models.list().data[0].id
    return client.chat.completions.create(model=model, messages=messages, extra_body=salted(**(extra or {})), **fields)


def texts_of(stream, n=1):
    texts, reasons, usage = [""] * n, [None] * n, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            delta = choice.text if hasattr(choice, "text") else choice.delta.content
            texts[choice.index] += delta or ""
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    return texts, reasons, usage


@pytest.mark.covers("API-01")
@pytest.mark.parametrize("params", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_streamed_text_is_the_whole_text(client, params):
    options = {"include_usage": True}
    whole = complete(client, PROMPT, **params)
    texts, reasons, usage = texts_of(complete(client, PROMPT, **params, stream=True, stream_options=options))
    assert texts == [whole.choices[0].text]
    assert len(texts[0]) > 10
    assert reasons == [whole.choices[0].finish_reason]
    assert usage == whole.usage
    answer = chat(client, CHAT, **params)
    texts, reasons, usage = texts_of(chat(client, CHAT, **params, stream=True, stream_options=options))
    assert texts == [answer.choices[0].message.content]
    assert len(texts[0]) > 10
    assert reasons == [answer.choices[0].finish_reason]
    assert usage == answer.usage


def test_seeds_decide_what_is_drawn(client):
    drawn = [complete(client, PROMPT, **{**SEEDED, "seed": seed}).choices[0].text for seed in (7, 8, 7)]
    assert drawn[0] == drawn[2] != drawn[1]


@pytest.mark.covers("API-01")
def test_usage_counts_the_tokens(client, server):
    answer = complete(client, PROMPT, **GREEDY, extra={"return_token_ids": True, "ignore_eos": True})
    (choice,) = answer.choices
    assert answer.usage.completion_tokens == len(choice.token_ids) == LENGTH
    assert answer.usage.prompt_tokens == len(choice.prompt_token_ids)
    assert answer.usage.total_tokens == LENGTH + len(choice.prompt_token_ids)
    chunks = list(complete(client, PROMPT, **GREEDY, stream=True))
    assert all(chunk.usage is None for chunk in chunks)
    chunks = list(complete(client, PROMPT, **GREEDY, stream=True, stream_options={"include_usage": True}))
    assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert chunks[-1].choices == []
    with server.http() as http:
        body = {"prompt": PROMPT, "max_tokens": 2, "stream": True, "stream_options": {"include_usage": True}}
        lines = http.post("/v1/completions", json=body).text.splitlines()
    assert [line for line in lines if line][-1] == "data: [DONE]"


@pytest.mark.covers("API-01")
def test_three_choices_streamed_and_whole(exact):
    params = {"temperature": 1.0, "seed": 3, "max_tokens": 24, "n": 3}
    whole = complete(exact, PROMPT, **params)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert len({choice.text for choice in whole.choices}) == 3
    texts, _, usage = texts_of(
        complete(exact, PROMPT, **params, stream=True, stream_options={"include_usage": True}), n=3
    )
    assert texts == [choice.text for choice in whole.choices]
    assert usage == whole.usage
    answer = chat(exact, CHAT, **params)
    assert len({choice.message.content for choice in answer.choices}) == 3
    texts, _, _ = texts_of(chat(exact, CHAT, **params, stream=True), n=3)
    assert texts == [choice.message.content for choice in answer.choices]


@pytest.mark.covers("API-01")
def test_stop_texts_end_the_text_before_them(client):
    scored = complete(client, PROMPT, **GREEDY, logprobs=0).choices[0]
    text, tokens = scored.text, scored.logprobs.tokens
    first, second = tokens[6], tokens[7]
    across = first[-1] + second[:2]  # no token holds it: it is there only when two are put together
    assert across in text and across not in "".join(tokens[:6]) + first
    for stop in (across, ["never said", across]):
        whole = complete(client, PROMPT, **GREEDY, stop=stop).choices[0]
        assert (whole.text, whole.finish_reason, whole.stop_reason) == (text[: text.index(across)], "stop", across)
    texts, reasons, _ = texts_of(complete(client, PROMPT, **GREEDY, stop=across, stream=True))
    assert (texts, reasons) == ([text[: text.index(across)]], ["stop"])
    kept = complete(client, PROMPT, **GREEDY, stop=across, extra={"include_stop_str_in_output": True}).choices[0].text
    assert kept == text[: text.index(across) + len(across)]


def test_a_stop_that_never_comes_swallows_nothing(client):
    text = complete(client, PROMPT, **GREEDY).choices[0].text
    beginning = text[-2:] + "\x00"  # its first characters end the text: they must come after all
    texts, reasons, _ = texts_of(complete(client, PROMPT, **GREEDY, stop=[beginning], stream=True))
    assert texts == [text]
    assert reasons == ["length"]


@pytest.mark.covers("API-01")
def test_echo_puts_the_prompt_in_front(client):
    alone = complete(client, PROMPT, **GREEDY).choices[0].text
    assert complete(client, PROMPT, **GREEDY, echo=True).choices[0].text == PROMPT + alone
    texts, _, _ = texts_of(complete(client, PROMPT, **GREEDY, echo=True, stream=True))
    assert texts == [PROMPT + alone]
    scored = complete(client, PROMPT, max_tokens=0, echo=True, logprobs=1).choices[0]
    assert scored.text == "".join(scored.logprobs.tokens) == PROMPT
    assert scored.logprobs.token_logprobs[0] is None
    assert all(value < 0 for value in scored.logprobs.token_logprobs[1:])


@pytest.mark.covers("API-01")
def test_logprobs_of_completions(client):
    choice = complete(client, PROMPT, **GREEDY, logprobs=3).choices[0]
    scores = choice.logprobs
    assert "".join(scores.tokens) == choice.text
    assert len(scores.tokens) == len(scores.token_logprobs) == len(scores.top_logprobs) == LENGTH
    for token, offset, value, top in zip(
        scores.tokens, scores.text_offset, scores.token_logprobs, scores.top_logprobs, strict=True
    ):
        assert choice.text[offset : offset + len(token)] == token
        assert value <= 0
        assert top[token] == value == max(top.values())  # greedy: nothing is likelier than what was taken
        assert len(top) >= 3
    pieces = [
        chunk.choices[0].logprobs
        for chunk in complete(client, PROMPT, **GREEDY, logprobs=3, stream=True)
        if chunk.choices and chunk.choices[0].logprobs
    ]
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert list(itertools.chain(*(getattr(piece, name) for piece in pieces))) == getattr(scores, name)


@pytest.mark.covers("API-01")
def test_logprobs_of_chat(client):
    answer = chat(client, CHAT, **GREEDY, logprobs=True, top_logprobs=4)
    content = answer.choices[0].logprobs.content
    said = b"".join(bytes(entry.bytes) for entry in content)
    assert said.decode().startswith(answer.choices[0].message.content)  # then at most the end-of-turn token
    for entry in content:
        best = [other.logprob for other in entry.top_logprobs]
        assert len(best) == 4
        assert best == sorted(best, reverse=True)
        assert (entry.token, entry.logprob) == (entry.top_logprobs[0].token, best[0])
    streamed = []
    for chunk in chat(client, CHAT, **GREEDY, logprobs=True, top_logprobs=4, stream=True):
        for choice in chunk.choices:
            streamed += choice.logprobs.content if choice.logprobs else []
    assert streamed == content


@pytest.mark.covers("API-01", "API-02")
def test_every_form_of_prompt(exact, tiny_server):
    prompts = ["every token reads numbers", "the cache", "a worker plans the next step, and then"]
    with tiny_server.http() as http:
        ids = [http.post("/tokenize", json={"prompt": prompt}).json()["tokens"] for prompt in prompts]
    alone = [complete(exact, prompt, **GREEDY).choices[0].text for prompt in prompts]
    assert len(set(alone)) == 3
    for prompt, tokens, text in zip(prompts, ids, alone, strict=True):
        assert complete(exact, [prompt], **GREEDY).choices[0].text == text
        assert complete(exact, tokens, **GREEDY).choices[0].text == text
    for several in (prompts, ids):
        answer = complete(exact, several, **GREEDY, extra={"return_token_ids": True})
        assert [choice.text for choice in answer.choices] == alone
        assert [choice.prompt_token_ids for choice in answer.choices] == ids
        assert answer.usage.prompt_tokens == sum(map(len, ids))
        texts, _, _ = texts_of(complete(exact, several, **GREEDY, stream=True), n=3)
        assert texts == alone
    pairs = complete(exact, prompts, **{**SEEDED, "max_tokens": 8}, n=2).choices
    assert [choice.index for choice in pairs] == list(range(6))


@pytest.mark.covers("API-01")
def test_token_ids_and_text_agree(client, server):
    with server.http() as http:

        def text_of(tokens):
            return http.post("/detokenize", json={"tokens": tokens}).json()["prompt"]

        def tokens_of(**body):
            answer = http.post("/tokenize", json=body).json()
            assert answer["count"] == len(answer["tokens"])
            assert answer["max_model_len"] == 1024
            return answer["tokens"]

        for text in (
            PROMPT,
            "def f(x):\n\treturn x  # 1 234",
            "naïve Ünïcödé 🙂👩‍👩‍👧 日本語 العربية",
            "<|im_start|>user\nhi<|im_end|>",
        ):
            assert text_of(tokens_of(prompt=text)) == text
        choice = complete(client, PROMPT, **GREEDY, extra={"return_token_ids": True}).choices[0]
        assert choice.prompt_token_ids == tokens_of(prompt=PROMPT)
        assert text_of(choice.token_ids) == choice.text
        answer = chat(client, CHAT, **GREEDY, extra={"return_token_ids": True})
        assert answer.prompt_token_ids == tokens_of(messages=CHAT)
        assert text_of(answer.choices[0].token_ids).removesuffix("<|im_end|>") == answer.choices[0].message.content
        streamed = []
        for chunk in chat(client, CHAT, **GREEDY, extra={"return_token_ids": True}, stream=True):
            for choice in chunk.choices:
                streamed += getattr(choice, "token_ids", None) or []
        assert streamed == answer.choices[0].token_ids


@pytest.mark.covers("API-01")
def test_models(client):
    (model,) = client.models.list().data
    assert (model.id, model.max_model_len) == ("smollm2", 1024)
    assert client.models.retrieve("smollm2") == model


@pytest.mark.covers("API-01")
@pytest.mark.parametrize("unit", ["日本", "Hello 🎉🎉\n"], ids=["cjk", "emoji"])
def test_characters_of_several_tokens_are_never_cut(client, unit):
    """A small model goes on with what is repeated often enough; its tokens are pieces of these characters."""
    params = {"temperature": 0.0, "max_tokens": 20}
    prompt = unit * 12
    whole = complete(client, prompt, **params, logprobs=0).choices[0]
    assert unit * 2 in whole.text
    assert sum("\ufffd" in token for token in whole.logprobs.tokens) >= 8  # there are borders inside characters
    deltas = [chunk.choices[0].text for chunk in complete(client, prompt, **params, stream=True) if chunk.choices]
    assert "".join(deltas) == whole.text
    assert len(deltas) > 5
    assert "\ufffd" not in "".join(deltas[:-1])
