"""Bodies and heads that are too large, too many or too slow, over a real socket."""

import socket
import time

import httpx
import pytest

from core.server import limits

JSON = {"content-type": "application/json"}
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


def talk(server, *parts, seconds=5.0):
    """Send the parts, and return what comes back until the server closes or falls silent."""
    with socket.create_connection(("127.0.0.1", server.port), seconds) as sock:
        sock.settimeout(seconds)
        answer = b""
        try:
            for part in parts:
                sock.sendall(part)
            while data := sock.recv(65536):
                answer += data
        except (ConnectionResetError, BrokenPipeError, TimeoutError):
            pass
        return answer


@pytest.fixture(scope="module")
def shared(live, fake):
    with live(fake(), max_body_bytes=10_000) as running:
        yield running


@pytest.fixture
def server(shared):
    yield shared
    assert httpx.get(f"{shared.url}/ready").status_code == 200


def test_announced_bodies(server):
    fits = b'{"prompt": "a"' + b" " * 9000 + b"}"
    assert httpx.post(f"{server.url}/v1/completions", content=fits, headers=JSON).status_code == 200
    response = httpx.post(f"{server.url}/v1/completions", content=b"x" * 10_001, headers=JSON)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "body_too_large"


def test_the_length_alone_is_enough(server):
    assert talk(server, HEAD % 999_999_999).startswith(b"HTTP/1.1 413")


def test_chunked_bodies(server):
    def endless():
        for _ in range(200):
            yield b"x" * 1000

    try:
        response = httpx.post(f"{server.url}/v1/completions", content=endless(), headers=JSON)
        assert response.status_code == 413
    except httpx.WriteError:  # the server may close while the client still sends
        pass


def test_bodies_that_never_end(server, monkeypatch):
    monkeypatch.setattr("core.server.body.BODY_SECONDS", 0.2)
    assert talk(server, HEAD % 50 + b"{").startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "head",
    [
        HEAD % 50,
        HEAD.replace(b"content-length: %d\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n5\r\n"),
        b"POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n",
    ],
    ids=["announced", "chunked", "unread"],
)
def test_bodies_that_stop_half_way(server, monkeypatch, head):
    monkeypatch.setattr(limits, "BODY_SILENCE_SECONDS", 0.3)
    began = time.monotonic()
    answer = talk(server, head + b"{")
    assert time.monotonic() - began < 4  # the server closed: the client waits for five seconds
    assert answer.startswith(b"HTTP/1.1 404" if b"/nowhere" in head else b"HTTP/1.1 408")


def test_bodies_that_come_slowly_are_read(server, monkeypatch):
    monkeypatch.setattr(limits, "BODY_SILENCE_SECONDS", 2.0)
    body = b'{"prompt": "abc", "max_tokens": 1}'
    with socket.create_connection(("127.0.0.1", server.port), 5) as sock:
        sock.sendall(b"".join([HEAD % len(body)]).replace(b"host: x", b"host: x\r\nconnection: close"))
        for byte in body:
            sock.sendall(bytes([byte]))
            time.sleep(0.005)
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("second", [b"host: x", b"HOST: y", b"Host:"])
def test_two_hosts_are_none(server, second):
    answer = talk(server, b"GET /health HTTP/1.1\r\nhost: x\r\n" + second + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400") and b'"code":"invalid_http"' in answer
    assert answer.count(b"HTTP/1.1") == 1


def test_each_request_of_a_connection_has_a_host(server):
    one = b"GET /health HTTP/1.1\r\nhost: x\r\n"
    assert talk(server, one + b"\r\n" + one + b"connection: close\r\n\r\n").count(b"HTTP/1.1 200") == 2


def test_huge_header(server):
    answer = talk(server, b"GET /health HTTP/1.1\r\nhost: x\r\nx-big: ", *[b"y" * 65536] * 80, b"\r\n\r\n")
    assert not answer or answer.startswith(b"HTTP/1.1 431")


def test_many_headers(server):
    lines = b"".join(b"x-%d: y\r\n" % number for number in range(10_000))
    answer = talk(server, b"GET /health HTTP/1.1\r\nhost: x\r\n", lines, b"\r\n")
    # The server hangs up while the client still sends: the reset may overtake the answer.
    assert not answer or answer.startswith(b"HTTP/1.1 431")


def test_huge_target(server):
    answer = talk(server, b"GET /" + b"y" * 1_000_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n")
    assert not answer or answer.startswith(b"HTTP/1.1 431")


def test_fair_heads_pass(server):
    lines = b"".join(b"x-%d: %s\r\n" % (number, b"y" * 400) for number in range(100))
    answer = talk(server, b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n", lines, b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("noise", [b"\x00\x01\x02\x03\r\n\r\n", b"GET\r\n\r\n", b"\x80\x04\x95pickle", b"{}\r\n\r\n"])
def test_noise(server, noise):
    answer = talk(server, noise, seconds=1.0)
    assert not answer or answer.startswith(b"HTTP/1.1 400")
    if answer:
        assert b'"code":"invalid_http"' in answer


@pytest.mark.parametrize("start", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nx-slow: a"])
def test_slow_heads_are_cut_off(live, llm, monkeypatch, start):
    monkeypatch.setattr(limits, "HEAD_SECONDS", 0.2)
    with live(llm) as server:
        began = time.monotonic()
        talk(server, start)
        assert time.monotonic() - began < 8
        assert httpx.get(f"{server.url}/health").status_code == 200


def test_pipelined_and_reused_connections(server):
    body = b'{"prompt": "a", "max_tokens": 1}'
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    one = head % len(body) + b"\r\n" + body
    last = head % len(body) + b"connection: close\r\n\r\n" + body
    assert talk(server, one * 3 + last).count(b"HTTP/1.1 200 OK") == 4
