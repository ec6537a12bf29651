"""The official client against a server on a socket, responses validated strictly."""

import openai
import pytest

USER = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def server(live, fake):
    with live(fake(reply=["Hello", "Bye"], cached=1), api_key="sk-x") as running:
        yield running


@pytest.fixture
def client(server):
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="sk-x", max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


@pytest.mark.covers("API-01")
def test_chat(client, server):
    answer = client.chat.completions.create(
        model=server.llm.model_name,
        messages=USER,
        n=2,
        logprobs=True,
        top_logprobs=1,
        stop=["\n"],
        seed=1,
        extra_body={"top_k": 5, "min_p": 0.1, "return_token_ids": True},
    )
    assert [choice.message.content for choice in answer.choices] == ["Hello", "Bye"]
    assert answer.choices[0].logprobs.content[0].top_logprobs[0].token == "H"
    assert answer.usage.completion_tokens == 8
    assert answer.usage.prompt_tokens_details.cached_tokens == 1
    assert answer.choices[1].token_ids == list(b"Bye")


@pytest.mark.covers("API-01")
def test_chat_stream(client, server):
    texts = ["", ""]
    usage = None
    stream = client.chat.completions.create(
        model=server.llm.model_name, messages=USER, n=2, stream=True, stream_options={"include_usage": True}
    )
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == ["Hello", "Bye"]
    assert usage.completion_tokens == 8


def test_chat_stream_helper(client, server):
    with client.chat.completions.stream(model=server.llm.model_name, messages=USER) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "Hello"
    assert final.choices[0].finish_reason == "stop"


@pytest.mark.covers("API-01")
def test_completions(client, server):
    answer = client.completions.create(model=server.llm.model_name, prompt=["ab", "c"], echo=True)
    assert [choice.text for choice in answer.choices] == ["abHello", "cHello"]
    answer = client.completions.create(model=server.llm.model_name, prompt="ab", logprobs=1)
    assert answer.choices[0].logprobs.tokens == list("Hello")
    assert answer.choices[0].logprobs.top_logprobs[0]["H"] == -0.5


def test_completions_stream(server):
    # The client's own type has no null finish_reason, which every server's stream sends: not strict here.
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-x") as client:
        stream = client.completions.create(model=server.llm.model_name, prompt="ab", stream=True)
        assert "".join(chunk.choices[0].text for chunk in stream) == "Hello"


def test_models(client, server):
    assert [model.id for model in client.models.list()] == [server.llm.model_name]
    assert client.models.retrieve(server.llm.model_name).id == server.llm.model_name


def test_errors_have_the_clients_types(client, server):
    name = server.llm.model_name
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model=name, messages=USER, temperature=-1)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="other", messages=USER)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError), openai.OpenAI(base_url=f"{server.url}/v1", api_key="no") as other:
        other.models.list()
    server.llm.healthy = False
    with pytest.raises(openai.InternalServerError) as gone:
        client.chat.completions.create(model=name, messages=USER)
    assert gone.value.status_code == 503


def test_a_stream_that_breaks_raises(client, server, engine_error):
    server.llm.fail_at, server.llm.failure = 2, engine_error
    seen = []
    with pytest.raises(openai.APIError) as broken:
        for chunk in client.chat.completions.create(model=server.llm.model_name, messages=USER, stream=True):
            seen.append(chunk)
    assert seen
    assert broken.value.code == "CORE-E110"
