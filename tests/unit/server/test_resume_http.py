"""Resumable streams over HTTP: a client goes away in the middle and reads on."""

from __future__ import annotations

import json
import time

import httpx
import pytest

ASK = {"x-resumable-stream": "true"}
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
TEXT = "A stream that is read in parts."


@pytest.fixture
def server(live, fake):
    with live(fake(TEXT), resume_seconds=5.0, host="127.0.0.1") as running:
        yield running


def client(server, **options):
    return httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=10, trust_env=False, **options)


def events(data: bytes) -> list[tuple[int, str]]:
    found = []
    for part in data.split(b"\n\n")[:-1]:
        number, line = part.split(b"\n", 1)
        found.append((int(number.removeprefix(b"id: ")), line.decode().removeprefix("data: ")))
    return found


def text_of(pairs) -> str:
    chunks = [json.loads(data) for _, data in pairs if data != "[DONE]"]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def begin(server, http, count, **body):
    """Read `count` events, then hang up; return the stream's id and the events."""
    data = b""
    with http.stream("POST", "/v1/chat/completions", json={**CHAT, **body}, headers=ASK) as response:
        assert response.status_code == 200
        name = response.headers["x-stream-id"]
        for chunk in response.iter_raw():
            data += chunk
            if data.count(b"\n\n") >= count:
                break
    return name, events(data[: data.rindex(b"\n\n") + 2])


def test_a_whole_stream_has_numbers_and_everything_else_as_ever(server):
    with client(server) as http:
        plain = http.post("/v1/chat/completions", json=CHAT)
        asked = http.post("/v1/chat/completions", json=CHAT, headers=ASK)
    assert "x-stream-id" not in plain.headers and b"id: 1" not in plain.content
    assert asked.headers["content-type"] == plain.headers["content-type"]
    pairs = events(asked.content)
    assert [number for number, _ in pairs] == list(range(1, len(pairs) + 1))
    assert (text_of(pairs), pairs[-1][1]) == (TEXT, "[DONE]")
    assert len(pairs) == plain.content.count(b"\n\n")


def test_a_broken_connection_reads_on_and_gets_every_event_once(server, until):
    server.llm.hold_at = 8
    with client(server) as http:
        name, seen = begin(server, http, 4)
        stream = until_left(server, name, until)
        assert server.llm.running == 1 and server.llm.aborted == []
        server.llm.held.set()
        until(lambda: stream.finished)
        rest = http.get(f"/v1/stream/{name}", headers={"last-event-id": str(seen[-1][0])})
        assert rest.headers["content-type"].startswith("text/event-stream")
        assert rest.headers["x-stream-id"] == name
        pairs = seen + events(rest.content)
        assert [number for number, _ in pairs] == list(range(1, len(pairs) + 1))
        assert (text_of(pairs), pairs[-1][1]) == (TEXT, "[DONE]")
        again = http.get(f"/v1/stream/{name}?after=0")
        assert events(again.content) == pairs
        assert http.get(f"/v1/stream/{name}", headers={"last-event-id": str(len(pairs))}).status_code == 204


def until_left(server, name, until):
    """Wait until the server has noticed that the reader is gone; return the stream."""
    (stream,) = [stream for stream in kept(server) if stream.id == name]
    until(lambda: stream.reader is None)
    return stream


def kept(server):
    return server.plugins["resumable"].store.all()


def test_reading_while_it_still_runs(server, until):
    server.llm.hold_at = 8
    with client(server) as http:
        name, seen = begin(server, http, 3)
        with http.stream("GET", f"/v1/stream/{name}", headers={"last-event-id": "0"}) as response:
            data = b""
            for chunk in response.iter_raw():
                data += chunk
                if data.count(b"\n\n") >= 9:
                    server.llm.held.set()
        pairs = events(data)
        assert pairs[: len(seen)] == seen
        assert (text_of(pairs), pairs[-1][1]) == (TEXT, "[DONE]")


def test_whoever_does_not_ask_is_aborted_as_ever(server, until):
    server.llm.hold_at = 8
    with client(server) as http, http.stream("POST", "/v1/chat/completions", json=CHAT) as response:
        assert "x-stream-id" not in response.headers
    until(lambda: server.llm.aborted)


def test_the_time_without_a_reader_is_bounded(live, fake, until):
    with live(fake(TEXT, hold_at=8), resume_seconds=0.1) as server, client(server) as http:
        name, _ = begin(server, http, 3)
        until(lambda: server.llm.aborted)
        answer = http.get(f"/v1/stream/{name}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "stream_not_found")
        assert kept(server) == []


def test_delete_ends_the_generation(server, until):
    server.llm.hold_at = 8
    with client(server) as http:
        name, _ = begin(server, http, 3)
        (row,) = http.get("/v1/streams").json()["data"]
        assert (row["id"], row["path"], row["finished"]) == (name, "/v1/chat/completions", False)
        assert row["events"] >= 3
        assert http.delete(f"/v1/stream/{name}").json() == {"id": name, "object": "stream", "deleted": True}
        until(lambda: server.llm.aborted)
        assert http.delete(f"/v1/stream/{name}").status_code == 404
        assert http.get("/v1/streams").json()["data"] == []


def test_errors_and_whole_answers_pass_through(server):
    with client(server, headers=ASK) as http:
        whole = http.post("/v1/chat/completions", json={**CHAT, "stream": False})
        assert whole.json()["choices"][0]["message"]["content"] == TEXT
        assert "x-stream-id" not in whole.headers
        refused = http.post("/v1/chat/completions", json={**CHAT, "temperature": -1})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "temperature")
        assert http.post("/v1/chat/completions", json={**CHAT, "model": "other"}).status_code == 404
        assert http.get("/v1/models").status_code == 200
        assert kept(server) == []


def test_a_client_that_leaves_before_the_first_event_is_aborted(server, until):
    server.llm.hold_at = 0
    with client(server) as http, pytest.raises(httpx.ReadTimeout):
        http.post("/v1/chat/completions", json=CHAT, headers=ASK, timeout=0.3)
    until(lambda: server.llm.aborted)
    assert kept(server) == []


def test_a_failure_in_the_stream_is_its_last_event(live, fake, engine_error):
    llm = fake(TEXT, fail_at=4, failure=engine_error)
    with live(llm, resume_seconds=5.0) as server, client(server) as http:
        pairs = events(http.post("/v1/chat/completions", json=CHAT, headers=ASK).content)
        assert pairs[-1][1] == "[DONE]"
        assert pairs[-2][1].startswith("event: error")


def test_the_last_words_of_a_stopped_server_are_kept(server, until):
    server.llm.hold_at = 8
    with client(server) as http:
        name, seen = begin(server, http, 3)
        stream = until_left(server, name, until)
        server.loop.call_soon_threadsafe(server.state.lifecycle.stop)
        until(lambda: stream.finished)
        pairs = events(http.get(f"/v1/stream/{name}", headers={"last-event-id": str(seen[-1][0])}).content)
        assert pairs[-1][1] == "[DONE]"
        assert "event: error" in pairs[-2][1]


@pytest.mark.parametrize("number", ["-1", "x", "1.0", "9" * 13, "\u0661".encode().decode("latin-1")])
def test_numbers_that_are_none(server, number):
    with client(server) as http:
        name, _ = begin(server, http, 3)
        refused = http.get(f"/v1/stream/{name}", headers={"last-event-id": number.encode("latin-1")})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "Last-Event-ID")
        beyond = http.get(f"/v1/stream/{name}", headers={"last-event-id": "99999"})
        assert beyond.json()["error"]["code"] == "no_such_event"


def test_nothing_is_kept_unless_the_request_asks(api):
    plain = api.post("/v1/chat/completions", CHAT)
    assert "x-stream-id" not in plain.headers and b"\nid: " not in plain.content
    assert "x-stream-id" in api.post("/v1/chat/completions", CHAT, headers=ASK).headers


def test_a_server_can_keep_none(live, fake):
    with live(fake(TEXT), resume_seconds=0.0) as server, client(server) as http:
        answer = http.post("/v1/chat/completions", json=CHAT, headers=ASK)
        assert "x-stream-id" not in answer.headers and b"\nid: " not in answer.content
        refused = http.get("/v1/stream/stream-x")
    assert refused.status_code == 404
    assert "--resume-seconds" in refused.json()["error"]["message"]


def test_the_list_is_the_admins(live, fake):
    keys = {"api_key": "sk-a", "admin_api_key": "sk-b"}
    with live(fake(TEXT), resume_seconds=5.0, **keys) as server, client(server, headers={"x-api-key": "sk-a"}) as http:
        name = http.post("/v1/chat/completions", json=CHAT, headers=ASK).headers["x-stream-id"]
        assert http.get("/v1/streams").status_code == 403
        assert http.get(f"/v1/stream/{name}").status_code == 200
        (row,) = http.get("/v1/streams", headers={"x-api-key": "sk-b"}).json()["data"]
        assert row["id"] == name
    assert time.time() - row["created"] < 60
