from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from core.cli import talk
from core.cli.chat import Conversation
from core.cli.client import Client, Delta, error_text
from core.cli.main import main
from core.cli.sse import EventDecoder


def test_events_for_every_split():
    data = b': comment\n\nevent: x\ndata: {"a": 1}\r\n\r\ndata: two\ndata:lines\n\nid: 3\n\ndata: [DONE]\n\n'
    expected = [b'{"a": 1}', b"two\nlines", b"[DONE]"]
    for first in range(len(data)):
        for second in (first, (first + len(data)) // 2):
            decoder = EventDecoder()
            parts = (data[:first], data[first:second], data[second:])
            assert [event for part in parts for event in decoder.feed(part)] == expected


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"error": {"message": "no."}}, "no"),
        ({"error": "no"}, "no"),
        ({"detail": "no"}, "no"),
        ("no", "no"),
    ],
)
def test_error_bodies(data, text):
    assert error_text(data) == text


def test_chat_quick(stub, capsys):
    argv = ["chat", "--url", stub.url, "-q", "hello", "--system-prompt", "be brief", "--max-tokens", "9", "--stats"]
    assert main([*argv, "--temperature", "0", "--api-key", "k"]) == 0
    out, err = capsys.readouterr()
    assert out == "w0 w1 w2 w3 \n"
    assert "4 tokens" in err and "tokens/s" in err and "first token after" in err
    path, headers, body = stub.requests[-1]
    assert path == "/v1/chat/completions" and headers["authorization"] == "Bearer k"
    assert body["model"] == "stub-model" and body["stream"] is True
    assert body["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    assert (body["max_tokens"], body["temperature"]) == (9, 0.0)
    assert "top_p" not in body


def test_chat_keeps_the_history(stub, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n\ntwo\n/new\nthree\n"))
    assert main(["chat", "--url", f"{stub.url}/v1/", "--model-name", "m"]) == 0
    said = [[message["content"] for message in body["messages"]] for body in stub.bodies]
    assert said == [["one"], ["one", "w0 w1 w2 w3 ", "two"], ["three"]]
    assert {body["model"] for body in stub.bodies} == {"m"}
    assert capsys.readouterr().out == "w0 w1 w2 w3 \n" * 3


def test_complete(stub, capsys, monkeypatch):
    monkeypatch.setenv("CORE_API_KEY", "from-environment")
    assert main(["complete", "--url", stub.url, "-q", "once upon", "--seed", "3"]) == 0
    assert capsys.readouterr().out == "w0 w1 w2 w3 \n"
    path, headers, body = stub.requests[-1]
    assert path == "/v1/completions" and body["prompt"] == "once upon" and body["seed"] == 3
    assert headers["authorization"] == "Bearer from-environment"


@pytest.mark.parametrize(("status", "hint"), [(401, "--api-key"), (400, "broken")])
def test_the_server_refuses(stub, capsys, status, hint):
    stub.fail, stub.failures = status, 1
    assert main(["chat", "--url", stub.url, "-q", "x"]) == 1
    err = capsys.readouterr().err
    assert "CORE-S191" in err and str(status) in err and "broken 0" in err and hint in err


def test_an_error_inside_the_stream(stub, capsys):
    stub.break_after = 2
    assert main(["chat", "--url", stub.url, "-q", "x"]) == 1
    out, err = capsys.readouterr()
    assert "w0 w1" in out and "CORE-S191" in err and "engine died" in err


def test_no_server(capsys):
    assert main(["chat", "--url", "http://127.0.0.1:9", "-q", "x"]) == 1
    err = capsys.readouterr().err
    assert "CORE-S190" in err and "core serve" in err and err.count("\n") == 1


def test_ctrl_c_stops_the_answer_not_the_chat(capsys):
    closed = []

    def answer(messages, params):
        try:
            yield Delta("par")
            raise KeyboardInterrupt
        finally:
            closed.append(True)

    conversation = Conversation(SimpleNamespace(chat=answer), {})
    conversation.say("hello")
    assert conversation.messages[-1] == {"role": "assistant", "content": "par"}
    assert "[stopped]" in capsys.readouterr().out and closed == [True]


def test_leaving_the_stream_closes_the_response(stub):
    client = Client(stub.url, model="m")
    stub.tokens = 1000
    stream = client.chat([{"role": "user", "content": "x"}], {})
    next(delta for delta in stream if delta.text)
    stream.close()
    client.close()
    assert len(stub.bodies) == 1


def test_output_cannot_drive_the_terminal():
    assert talk.printable("a\x1b[31mb\tc\nd\x07\x9b€\x7f") == "a[31mb\tc\nd€"


def test_speed():
    assert talk.speed(0.0, 0.5, 1.5, 11) == "[first token after 500 ms, 10.0 tokens/s, 11 tokens]"
    assert talk.speed(0.0, 0.5, 0.5, 1) == "[first token after 500 ms, 1 tokens]"
    assert talk.speed(0.0, None, 1.0, 0) == "[no text]"


@pytest.mark.parametrize("command", ["chat", "complete"])
def test_local(monkeypatch, capsys, command):
    calls = []

    class FakeLLM:
        def __init__(self, model):
            calls.append(("open", model))

        def _outputs(self, what, params):
            calls.append((what, params.max_tokens, params.temperature))
            return [SimpleNamespace(outputs=[SimpleNamespace(text="hi there", token_ids=[1, 2])])]

        def chat(self, messages, params):
            return self._outputs(messages[-1]["content"], params)

        def generate(self, prompts, params):
            return self._outputs(prompts[0], params)

        def close(self):
            calls.append("close")

    monkeypatch.delitem(sys.modules, "core.cli.local", raising=False)
    monkeypatch.setitem(sys.modules, "core.frontend.llm", SimpleNamespace(LLM=FakeLLM))
    assert main([command, "--local", "tiny", "-q", "hello", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == "hi there\n"
    assert calls == [("open", "tiny"), ("hello", 512, 0.0), "close"]
