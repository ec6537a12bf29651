from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from core_plugin_chat import talk
from core_plugin_chat.text import printable

from core.cli.client import Client, StreamedDelta, error_text
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
    assert "4 tokens]" in err and "tokens/s" in err and "first token after" in err and "2 tokens read" in err
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


def test_ctrl_c_stops_the_answer_and_what_came_stays(capsys, chat_session):
    closed = []

    def answer(messages, params):
        try:
            yield StreamedDelta("par")
            raise KeyboardInterrupt
        finally:
            closed.append(True)

    session = chat_session(SimpleNamespace(chat=answer, model="m"))
    session.take("hello")
    assert session.stopped and session.conversation.turns[-1] == {"role": "assistant", "content": "par"}
    assert capsys.readouterr().out == "par\n" and closed == [True]
    session.take("/stats")
    assert not session.stopped


def test_ctrl_c_ends_a_quick_question_with_its_status(monkeypatch, capsys):
    def answer(self, messages, params):
        yield StreamedDelta("par")
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "chat", answer)
    assert main(["chat", "--url", "http://127.0.0.1:9", "-q", "x"]) == 130
    monkeypatch.setattr(Client, "complete", answer)
    assert main(["complete", "--url", "http://127.0.0.1:9", "-q", "x"]) == 130
    assert capsys.readouterr().out == "par\n" * 2


def test_reasoning_is_no_part_of_what_a_program_reads(stub, capsys):
    stub.thoughts = 3
    assert main(["chat", "--url", stub.url, "-q", "x"]) == 0
    assert capsys.readouterr().out == "w0 w1 w2 w3 \n"


def test_what_an_answer_came_to(chat_session):
    def answer(messages, params):
        yield StreamedDelta("par")
        yield StreamedDelta(finish_reason="length", tokens=7, prompt_tokens=3)

    session = chat_session(SimpleNamespace(chat=answer, model="m"))
    session.take("hello")
    assert (session.totals.answers, session.totals.read, session.totals.generated) == (1, 3, 7)


def test_standard_input_as_one_text(stub, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n\ntwo\n"))
    assert main(["chat", "--url", stub.url, "-q", "-"]) == 0
    assert stub.bodies[-1]["messages"] == [{"role": "user", "content": "one\n\ntwo"}]


def test_all_sampling_flags_arrive(stub):
    flags = ["--top-p", "0.5", "--top-k", "4", "--min-p", "0.1", "--repetition-penalty", "1.5", "--stop", "a"]
    assert main(["complete", "--url", stub.url, "-q", "x", *flags, "--stop", "b"]) == 0
    wanted = {"top_p": 0.5, "top_k": 4, "min_p": 0.1, "repetition_penalty": 1.5, "stop": ["a", "b"]}
    assert wanted.items() <= stub.bodies[-1].items()


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", ""])
def test_what_is_no_address(capsys, url):
    assert main(["chat", "--url", url, "-q", "x"]) == 2
    assert "CORE-C183" in capsys.readouterr().err


def test_leaving_the_stream_closes_the_response(stub):
    client = Client(stub.url, model="m")
    stub.tokens = 1000
    stream = client.chat([{"role": "user", "content": "x"}], {})
    next(delta for delta in stream if delta.text)
    stream.close()
    client.close()
    assert len(stub.bodies) == 1


def test_output_cannot_drive_the_terminal():
    assert printable("a\x1b[31mb\tc\nd\x07\x9b€\x7f") == "a[31mb\tc\nd€"


def test_speed():
    def read_out(**fields):
        return talk.speed(talk.Answer(**fields))

    assert read_out(wait=0.5, seconds=1.5, tokens=11) == "[first token after 500 ms, 10.0 tokens/s, 11 tokens]"
    assert read_out(wait=0.5, seconds=0.5, tokens=1) == "[first token after 500 ms, 1 tokens]"
    read = read_out(wait=0.5, seconds=0.5, tokens=1, prompt_tokens=9)
    assert read == "[9 tokens read, first token after 500 ms, 1 tokens]"
    assert read_out(seconds=1.0) == "[no text]"
