"""The load generator's HTTP client, against servers that answer as HTTP/1.1 allows, and against others."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from core_plugin_bench.http import HttpClient, HttpError
from core_plugin_bench.metrics import Record
from core_plugin_bench.timeline import Timeline

from core.cli.host.servers import AllServers


@asynccontextmanager
async def server(*answers: bytes, close: bool = False, pause: float = 0.0):
    """Answer every request with the pieces, one write each; keep what was received."""
    received: list[bytes] = []
    connections: list[int] = []

    async def serve(reader, writer):
        connections.append(1)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split()[0])
                received.append(head + await reader.readexactly(length))
                for piece in answers:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(pause)
                if close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1/x?a=1", received, connections
    finally:
        listener.close()


def keep_in(pieces: list):
    return lambda status, piece, now: pieces.append((piece, now))


def post(*answers: bytes, times: int = 1, close: bool = False, headers=None, pause: float = 0.0):
    """Return `(status, [(piece, time)])` of every request, what the server received, and its connections."""

    async def work():
        async with server(*answers, close=close, pause=pause) as (url, received, connections):
            client = HttpClient(url, headers or {})
            results = []
            for _ in range(times):
                pieces: list[tuple[bytes, float]] = []
                results.append((await client.post(b"{}", keep_in(pieces), {"X-Id": "7"}), pieces))
            await client.close()
            return results, received, len(connections)

    return asyncio.run(asyncio.wait_for(work(), 10))


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_chunks_arrive_one_by_one_with_their_times():
    [(status, pieces)], received, _ = post(CHUNKED, b"3\r\nabc\r\n", b"2\r\nde\r\n", b"0\r\n\r\n", pause=0.02)
    assert status == 200 and [piece for piece, _ in pieces] == [b"abc", b"de"]
    assert pieces[1][1] - pieces[0][1] > 0.01
    head = received[0]
    assert head.startswith(b"POST /v1/x?a=1 HTTP/1.1\r\nHost: 127.0.0.1:") and head.endswith(b"\r\n\r\n{}")
    assert b"Content-Length: 2\r\n" in head and b"X-Id: 7\r\n" in head and b"Accept-Encoding: identity" in head


def test_connections_are_kept_and_reused():
    results, _, connections = post(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", times=3)
    assert [b"".join(piece for piece, _ in pieces) for _, pieces in results] == [b"ok"] * 3
    assert connections == 1


def test_a_server_that_closes_gets_new_connections():
    answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    results, _, connections = post(answer, times=3, close=True)
    assert [status for status, _ in results] == [200] * 3 and connections == 3


def test_a_body_that_lasts_until_the_end_of_the_connection():
    [(status, pieces)], *_ = post(b"HTTP/1.1 200 OK\r\n\r\nall of it", close=True)
    assert status == 200 and b"".join(piece for piece, _ in pieces) == b"all of it"


def test_an_interim_answer_is_not_the_answer():
    answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nContent-Length: 1\r\n\r\nx"
    [(status, pieces)], *_ = post(answer)
    assert status == 503 and pieces[0][0] == b"x"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nshort", "before the answer was complete"),
        (CHUNKED + b"5\r\nab", "before the answer was complete"),
        (b"", "before the answer was complete"),
        (b"SSH-2.0-server\r\n\r\n", "not an HTTP/1.1 answer"),
    ],
)
def test_answers_that_are_none(answer, why):
    with pytest.raises(HttpError, match=why):
        post(answer, close=True)


def test_no_server():
    client = HttpClient("http://127.0.0.1:9/", {})
    with pytest.raises(HttpError, match=r"no connection to 127\.0\.0\.1:9"):
        asyncio.run(client.post(b"", lambda *_: None))


@pytest.mark.parametrize("url", ["ftp://x/", "http://", "x"])
def test_addresses_that_are_none(url):
    with pytest.raises(HttpError, match="no http or https address"):
        HttpClient(url, {})


def test_a_header_cannot_smuggle_another():
    with pytest.raises(HttpError, match="line break"):
        HttpClient("http://h/", {"A": "b\r\nC: d"})


def test_a_server_without_a_trusted_certificate_is_refused_unless_told_not_to():
    assert HttpClient("https://h/", {}, verify=False)._tls.check_hostname is False
    assert HttpClient("https://h/", {})._tls.check_hostname is True


@pytest.mark.parametrize(
    ("pieces", "text", "tokens"),
    [
        ([b'data: {"choices":[{"text":"a"}]}\n\ndata: {"choices":[{"text":"b"}]}\n\n'], "ab", 2),
        ([b'data: {"choices":[{"del', b'ta":{"content":"a"}}]}\n\n'], "a", 1),
        ([b'data: {"choices":[{"delta":{"reasoning_content":"r"}}]}\n\n'], "r", 1),
        (
            [b'data: {"choices":[{"text":""}]}\n\n', b'data: {"choices":[{"text":"","finish_reason":"stop"}]}\n\n'],
            "",
            1,
        ),
    ],
)
def test_timelines(pieces, text, tokens):
    record = Record(start=1.0)
    timeline = Timeline(AllServers(), record)
    for number, piece in enumerate(pieces):
        timeline.receive(200, piece, 2.0 + number)
    timeline.end(200)
    assert (record.text, record.output_len, record.error) == (text, tokens, "")
    assert record.ttft == (2.0 if pieces[0].endswith(b"del") else 1.0)  # the piece that completes the event counts


def test_a_refusal_is_read_to_its_end():
    record = Record(start=0.0)
    timeline = Timeline(AllServers(), record)
    timeline.receive(429, b'{"error": {"mess', 1.0)
    timeline.receive(429, b'age": "slow down"}}', 1.1)
    timeline.end(429)
    assert record.error == "status 429: slow down"
