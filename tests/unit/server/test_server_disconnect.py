"""When the client goes, its request goes: before the first token, in a stream, and while a whole answer is made."""

import random
import socket
import threading

import httpx
import orjson
import pytest

HEAD = "POST /v1/{} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n"


def leave(server, body, path="completions", after=0):
    """Send a request, read `after` bytes of the answer, and close."""
    content = orjson.dumps(body)
    with socket.create_connection(("127.0.0.1", server.port), 5) as sock:
        sock.sendall(HEAD.format(path, len(content)).encode() + content)
        got = b""
        while len(got) < after:
            got += sock.recv(4096)
        return got


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("hold_at", [0, 2])
def test_waiting_for_a_token(live, fake, until, stream, hold_at):
    llm = fake(hold_at=hold_at)
    with live(llm) as server:
        content = orjson.dumps({"prompt": "a", "stream": stream})
        with socket.create_connection(("127.0.0.1", server.port), 5) as sock:
            sock.sendall(HEAD.format("completions", len(content)).encode() + content)
            until(lambda: llm.running == 1)
        until(lambda: llm.running == 0, 1.0)
        assert len(llm.aborted) == 1
        assert server.state.pending == 0
        assert not server.state.lifecycle.work
        llm.held.set()
        assert httpx.post(f"{server.url}/v1/completions", json={"prompt": "a"}).status_code == 200


def test_leaving_a_running_stream(live, fake, until):
    llm = fake(reply="x" * 400, delay=0.01)
    with live(llm) as server:
        chat = {"messages": [{"role": "user", "content": "a"}], "n": 2, "stream": True}
        assert b"200 OK" in leave(server, chat, "chat/completions", after=600)
        until(lambda: len(llm.aborted) == 1, 1.0)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_leaving_with_another_request_in_the_pipeline(live, fake, until, stream, later, caplog):
    llm = fake(reply="x" * 400, delay=0.01)
    with live(llm) as server:
        content = orjson.dumps({"prompt": "a", "stream": stream})
        with socket.create_connection(("127.0.0.1", server.port), 5) as sock:
            request = HEAD.format("completions", len(content)).encode() + content
            sock.sendall(request if later else request * 2)
            until(lambda: llm.running == 1)
            sock.sendall(request if later else b"")
        until(lambda: len(llm.aborted) == 1, 1.0)
        assert llm.running == 0 and len(llm.requests) == 1  # nobody waits for the second one either
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("hold_at", [0, 3])
def test_garbage_behind_a_request_is_no_part_of_its_answer(live, fake, until, hold_at):
    llm = fake(hold_at=hold_at)
    with live(llm) as server:
        content = orjson.dumps({"prompt": "a", "stream": True})
        with socket.create_connection(("127.0.0.1", server.port), 5) as sock:
            sock.sendall(HEAD.format("completions", len(content)).encode() + content)
            got = b""
            while got.count(b"data: ") < hold_at:
                got += sock.recv(4096)
            until(lambda: llm.running == 1)
            sock.sendall(b"no request\r\n\r\n")
            while piece := sock.recv(4096):
                got += piece
        assert b"HTTP/1.1 400" not in got and b"DONE" not in got and got.count(b"HTTP/1.1") == (hold_at > 0)
        until(lambda: len(llm.aborted) == 1, 1.0)


def test_many_prompts_are_all_aborted(live, fake, until):
    llm = fake(hold_at=1)
    with live(llm) as server:
        content = orjson.dumps({"prompt": ["a", "b", "c"]})
        with socket.create_connection(("127.0.0.1", server.port), 5) as sock:
            sock.sendall(HEAD.format("completions", len(content)).encode() + content)
            until(lambda: llm.running == 3)
        until(lambda: llm.running == 0, 1.0)
        assert len(llm.aborted) == 3


def test_a_body_that_breaks_off(live, llm, until):
    with live(llm) as server:
        with socket.create_connection(("127.0.0.1", server.port), 5) as sock:
            sock.sendall(HEAD.format("completions", 100).encode() + b'{"prompt"')
        assert httpx.get(f"{server.url}/ready").status_code == 200
        assert llm.requests == []


def test_a_storm(live, fake, until):
    llm = fake(reply="x" * 50, delay=0.002)
    pick = random.Random(7)
    with live(llm, max_waiting=10_000) as server:

        def client(count):
            for _ in range(count):
                leave(server, {"prompt": "a", "stream": pick.random() < 0.5}, after=0)

        threads = [threading.Thread(target=client, args=(25,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: llm.running == 0 and not server.state.lifecycle.work, 2.0)
        assert server.state.pending == 0
        until(lambda: not server.server.server_state.connections, 2.0)
        assert httpx.post(f"{server.url}/v1/completions", json={"prompt": "a"}).status_code == 200
