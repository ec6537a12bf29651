"""What a streamed answer costs on the wire: one write per step, whatever the step brings."""

from __future__ import annotations

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

USER = [{"role": "user", "content": "Hi"}]


class Counting:
    """A transport that keeps what is written, and passes it on."""

    def __init__(self, transport, writes):
        self._transport, self._writes = transport, writes

    def write(self, data):
        self._writes.append(bytes(data))
        self._transport.write(data)

    def __getattr__(self, name):
        return getattr(self._transport, name)


@pytest.fixture
def writes(monkeypatch):
    """Every write of every connection, in order."""
    found = []
    connected = HttpToolsProtocol.connection_made

    def made(self, transport):
        connected(self, transport)
        self.transport = Counting(transport, found)

    monkeypatch.setattr(HttpToolsProtocol, "connection_made", made)
    return found


@pytest.mark.parametrize(("path", "n"), [("chat/completions", 1), ("chat/completions", 3), ("completions", 4)])
def test_a_step_is_one_write_per_connection(live, fake, writes, path, n):
    text = "abcdefgh"
    with live(fake(reply=text)) as server:
        question = {"messages": USER} if path.startswith("chat") else {"prompt": "Hi"}
        body = {**question, "stream": True, "n": n, "temperature": 0.5}
        answer = httpx.post(f"{server.url}/v1/{path}", json=body)
    assert answer.status_code == 200
    bodies = [write for write in writes if b"data: " in write]
    # The head, one write per step, and the end: neither a sequence nor an event has a write of its own.
    assert len(writes) == 1 + len(text) + 1
    assert bodies[-1].count(b"data: ") == 1 and b"data: [DONE]" in bodies[-1]
    roles = n if path.startswith("chat") else 0
    assert [write.count(b"data: ") for write in bodies[:-1]] == [n + roles] + [n] * (len(text) - 1)
