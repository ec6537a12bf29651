"""Ollama's API over real HTTP, asked by Ollama's own client: a model that says what it is told, and one that embeds."""

from __future__ import annotations

import json

import numpy as np
import ollama
import pytest

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": CITY}}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'
FLAGS = ("--threads", "1", "--dtype", "float32", "--served-model-name", "scripted", "--max-model-len", "2048")
FLAGS += ("--tool-parser", "qwen3_json", "--route", "ollama")


@pytest.fixture(scope="module")
def server(launch, scripted):
    checkpoint, plugin = scripted
    return launch(checkpoint, *FLAGS, PYTHONPATH=plugin).wait_ready()


@pytest.fixture(scope="module")
def client(server):
    return ollama.Client(host=server.url, trust_env=False, timeout=60)


@pytest.fixture
def say(client):
    """`say(text)` has the model say it."""

    def say(text, **fields):
        return client.chat("scripted", [{"role": "user", "content": text}], **fields)

    return say


def refused(call, *args, **fields):
    with pytest.raises(ollama.ResponseError) as caught:
        call(*args, **fields)
    return caught.value.status_code, caught.value.error


def test_a_chat_has_the_figures(say):
    answer = say("Grüße, 日本!")
    assert (answer.message.role, answer.message.content, answer.model) == ("assistant", "Grüße, 日本!", "scripted")
    assert answer.done and answer.done_reason == "stop" and answer.message.tool_calls is None
    assert answer.eval_count == len("Grüße, 日本!".encode()) + 1 and answer.prompt_eval_count == answer.eval_count + 1
    assert 0 < answer.prompt_eval_duration <= answer.total_duration < 60e9
    assert answer.prompt_eval_duration + answer.eval_duration == pytest.approx(answer.total_duration, abs=10)


def test_a_stream_is_the_same_bit_by_bit(say, server):
    parts = list(say("one two three", stream=True))
    assert "".join(part.message.content for part in parts) == "one two three" and len(parts) > 3
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].done_reason == "stop" and parts[-1].eval_count == 14 and parts[0].eval_count is None
    with server.http() as http:
        answer = http.post("/api/chat", json={"messages": [{"role": "user", "content": "ab"}]})
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["done"] for line in answer.text.splitlines()][-1] is True


def test_generate_and_its_raw_form(client):
    answer = client.generate("scripted:latest", "hello", system="be kind")
    assert (answer.response, answer.model, answer.done_reason) == ("hello", "scripted:latest", "stop")
    assert "".join(part.response for part in client.generate("scripted", "hello", stream=True)) == "hello"
    raw = client.generate("scripted", "left out<|script|>just this<|emit|>", raw=True)
    assert raw.response == "just this" and raw.done_reason == "stop"
    cut = client.generate("scripted", "word<|emit|>", raw=True, options={"num_predict": 2, "temperature": 0.0})
    assert (cut.response, cut.done_reason, cut.eval_count) == ("wo", "length", 2)


def test_options(say):
    assert say("one two", options={"stop": ["tw"], "temperature": 0, "top_k": 40.0}).message.content == "one "
    cut = say("abcdef", options=ollama.Options(num_predict=3, seed=-1, num_ctx=4096, repeat_penalty=1.0))
    assert (cut.message.content, cut.done_reason) == ("abc", "length")
    assert say("all of it", options={"num_predict": 10**6}).message.content == "all of it"
    assert say("x", options={"num_predict": -2}).message.content == "x"
    status, text = refused(say, "x", options={"mirostat": 2})
    assert status == 400 and text.startswith("options.mirostat is not available")
    assert refused(say, "x", options={"temperature": -1})[0] == 400
    assert refused(say, "x", options={"temperature": "hot"})[1].startswith("options.temperature: ")


def test_tools_are_called_and_answered(client, say):
    def get_weather(city: str) -> str:
        """Say the weather.

        Args:
            city: Where.
        """
        return f"rain in {city}"

    script = "Let me see." + CALL % "Oslo" + CALL % "Rome"
    answer = say(script, tools=[get_weather])
    assert answer.message.content.strip() == "Let me see." and answer.done_reason == "stop"
    calls = answer.message.tool_calls
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("get_weather", {"city": "Oslo"}),
        ("get_weather", {"city": "Rome"}),
    ]
    parts = list(say(script, tools=TOOLS, stream=True))
    assert [call for part in parts for call in part.message.tool_calls or ()] == calls
    told = [{"role": "user", "content": "?"}, answer.message]
    told += [{"role": "tool", "tool_name": "get_weather", "content": "rain"}] * 2
    again = client.chat("scripted", [*told, {"role": "user", "content": "It rains."}], tools=TOOLS)
    assert again.message.content == "It rains."


def test_thinking_stands_apart(say, client):
    script = "<think>\nHm, 4 < 5.\n</think>\n\nYes."
    answer = say(script, think=True)
    assert (answer.message.thinking.strip(), answer.message.content.strip()) == ("Hm, 4 < 5.", "Yes.")
    parts = list(say(script, think="high", stream=True))
    assert "".join(part.message.thinking or "" for part in parts).strip() == "Hm, 4 < 5."
    assert client.generate("scripted", script, think=True).thinking.strip() == "Hm, 4 < 5."
    assert refused(say, "x", think="enormous")[0] == 400
    assert say("plain", think=False).message.content == "plain"


def test_formats(say):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert json.loads(say('{"n": 7}', format=schema, options={"temperature": 0}).message.content) == {"n": 7}
    assert json.loads(say('{"a": [1]}', format="json").message.content) == {"a": [1]}
    assert refused(say, "x", format={"type": "nothing"})[0] == 400


def test_logprobs(say):
    answer = say("ab", logprobs=True, top_logprobs=2)
    assert [one.token for one in answer.logprobs[:2]] == ["a", "b"] and answer.logprobs[0].logprob > -0.1
    assert len(answer.logprobs[0].top_logprobs) == 2


def test_the_model_is_described(client, server):
    (listed,) = client.list().models
    assert listed.model == "scripted" and len(listed.digest) == 64 and listed.size > 0
    (running,) = client.ps().models
    assert running.context_length == 2048 and running.expires_at.year > 2100
    shown = client.show("scripted")
    assert shown.capabilities == ["completion", "tools", "thinking"] and "message" in shown.template
    assert shown.modelinfo["scripted.context_length"] == 2048 and shown.details.family == "scripted"
    with server.http() as http:
        assert http.get("/").text == "Ollama is running" and http.head("/").status_code == 200
        assert http.get("/api/version").json()["version"].count(".") == 2 and http.head("/api/tags").status_code == 200
    assert "routes of ollama" in server.stdout and "without a key: /" in server.stdout


def test_what_changes_models_is_refused_but_the_pull_of_what_is_there(client):
    assert client.pull("scripted").status == "success"
    assert [part.status for part in client.pull("scripted", stream=True)] == ["pulling manifest", "success"]
    for call, args in (
        (client.pull, ("llama3",)),
        (client.push, ("scripted",)),
        (client.create, ("mine", None, "scripted")),
        (client.copy, ("scripted", "mine")),
        (client.delete, ("scripted",)),
    ):
        status, text = refused(call, *args)
        assert status == 501 and "serves one model" in text


def test_what_cannot_be_is_said_in_a_sentence(client, say):
    assert refused(client.chat, "llama3", []) == (404, "model 'llama3' not found")
    assert "text only" in refused(client.generate, "scripted", "x", images=["aGk="])[1]
    assert "--chat-template" in refused(client.generate, "scripted", "x", template="{{ .Prompt }}")[1]
    assert "before a suffix" in refused(client.generate, "scripted", "x", suffix="y")[1]
    assert "chat route" in refused(client.generate, "scripted", "x", context=[1, 2])[1]
    assert refused(say, "x" * 5000)[0] == 400
    assert refused(client.embed, "scripted", "x") == (400, '"scripted" does not support embeddings')


def test_a_request_without_content_asks_whether_the_model_is_there(client):
    assert client.chat("scripted", []).done_reason == "load"
    assert client.generate("scripted", keep_alive=0).done_reason == "unload"


def test_embeddings(launch):
    server = launch("minilm", "--threads", "1", "--route", "ollama", "--api-key", "secret").wait_ready()
    headers = {"Authorization": "Bearer secret"}
    client = ollama.Client(host=server.url, trust_env=False, timeout=60, headers=headers)
    texts = ["A dog barks.", "A cat sleeps.", "word " * 2000]
    answer = client.embed("minilm", texts)
    vectors = np.array(answer.embeddings)
    assert vectors.shape == (3, 384) and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    assert answer.prompt_eval_count > 12 and answer.total_duration > 0
    assert np.allclose(client.embeddings("minilm", texts[0]).embedding, vectors[0], atol=1e-4)
    assert refused(client.embed, "minilm", texts[2], truncate=False)[0] == 400
    assert client.show("minilm").capabilities == ["embedding"]
    status, text = refused(client.chat, "minilm", [{"role": "user", "content": "hi"}])
    assert status == 400 and "does not support chat" in text
    status, text = refused(ollama.Client(host=server.url, trust_env=False).list)
    assert status == 401 and text.startswith("A key is needed")
