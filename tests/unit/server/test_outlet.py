"""The way of a stream's bytes to its connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from core.server.outlet import StreamBody, pour
from core.server.wire import Wire

HEAD = {"type": "http.response.start", "status": 200, "headers": []}


class Connection:
    """uvicorn's cycle, as far as a wire knows it."""

    def __init__(self, *, paused=False, chunked=True, gone=False, complete=False):
        self.flow = SimpleNamespace(write_paused=paused)
        self.chunked_encoding, self.disconnected, self.response_complete = chunked, gone, complete
        self.written, self.sent = [], []
        self.transport = SimpleNamespace(write=self.written.append)

    async def send(self, message):
        self.sent.append(message)


def test_a_wire_writes_a_chunk():
    connection = Connection()
    assert Wire(connection).at_once(b"x" * 300) is True
    assert connection.written == [b"12c\r\n" + b"x" * 300 + b"\r\n"]


@pytest.mark.parametrize("state", [{"paused": True}, {"chunked": False}, {"chunked": None}, {"complete": True}])
def test_a_wire_leaves_to_send_what_cannot_be_written_now(state):
    connection = Connection(**state)
    assert Wire(connection).at_once(b"x") is False and connection.written == []


def test_a_wire_throws_away_what_nobody_gets_and_never_ends_a_body():
    gone, open_ = Connection(gone=True, paused=True), Connection()
    assert Wire(gone).at_once(b"x") is True and gone.written == []
    assert Wire(open_).at_once(b"") is True and open_.written == []  # an empty chunk is the end


def test_a_body_goes_behind_its_head_and_waits_for_a_client_that_is_behind():
    async def main():
        connection = Connection()
        wire = Wire(connection)
        body = StreamBody(HEAD, wire, wire)
        assert body.put(b"1") is False and not body.open and connection.sent == []
        await body.room()
        assert [message["type"] for message in connection.sent] == ["http.response.start", "http.response.body"]
        assert body.put(b"2") is True and connection.written == [b"1\r\n2\r\n"]
        connection.flow.write_paused = True
        assert body.put(b"3") is False
        connection.flow.write_paused = False
        assert body.put(b"4") is False  # the client has caught up, but 3 comes first
        await body.room()
        await body.end(b"5")
        return [message.get("body") for message in connection.sent[1:]]

    assert asyncio.run(main()) == [b"1", b"34", b"5"]


def test_the_end_brings_the_head_and_what_was_kept_along():
    async def main():
        connection = Connection()
        body = StreamBody(HEAD, connection.send, connection.send)
        body.put(b"1")
        await body.end(b"2")
        return connection.sent

    assert asyncio.run(main()) == [HEAD, {"type": "http.response.body", "body": b"12"}]


def test_a_body_whose_head_waits_is_not_open():
    async def main():
        async def never(message):
            await asyncio.Event().wait()

        body = StreamBody(HEAD, never, never)
        body.put(b"1")
        waiting = asyncio.ensure_future(body.room())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        return body.open

    assert asyncio.run(main()) is False


def test_poured_events_are_closed_when_their_outlet_fails():
    closed = []

    async def events():
        try:
            yield b"1"
            yield b"2"
        finally:
            closed.append(True)

    class Broken:
        def put(self, data):
            return False

        async def room(self):
            raise ConnectionError

    with pytest.raises(ConnectionError):
        asyncio.run(pour(events(), Broken()))
    assert closed == [True]
