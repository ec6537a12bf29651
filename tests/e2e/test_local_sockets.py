"""Web sockets of the server that a command has of its own."""

from __future__ import annotations

import socket

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import unix_connect

from core.cli.local import LocalServer
from core.config.resolved import Options

PLUGIN = """
from core.api import RouteSpec, TextRequest

class Talk:
    def __init__(self, options): ...

    def declare(self, registry):
        registry.socket("/x/talk", self.talk)

    def bind(self, client):
        self.client = client

    async def talk(self, ws):
        await ws.accept()
        while (said := await ws.receive()) is not None:
            request, tokens = TextRequest(prompts=[said], sampling={"max_tokens": 3}), []
            answer = await self.client.open(request, prefix="t")

            def take(deltas):
                tokens.extend(token for delta in deltas for token in delta.token_ids)
                return False

            async def more():
                return True

            await answer.run(take, more)
            await ws.send(str(len(tokens)))
        await ws.close(4002, "the server ends")

__core_drivers__ = [RouteSpec(name="talk", impl=f"{__name__}:Talk", api=1, summary="s", automatic=True)]
"""


def test_a_plugin_has_sockets_on_the_server_of_a_command(tiny, tmp_path):
    (tmp_path / "talk.py").write_text(PLUGIN)
    given = {
        "model": {"model": str(tiny), "dtype": "float32"},
        "select": {"plugin_file": [str(tmp_path / "talk.py")]},
        "kv": {"num_blocks": 100},
        "runtime": {"threads": 1},
    }
    server = LocalServer(Options.model_validate(given))
    try:
        with unix_connect(server.path, "ws://localhost/x/talk", proxy=None) as ws:
            ws.send("a b c")
            assert ws.recv(30) == "3"
            server.close()
            with pytest.raises(ConnectionClosed) as ended:
                ws.recv(30)
            assert (ended.value.rcvd.code, ended.value.rcvd.reason) == (4002, "the server ends")
    finally:
        server.close()
    with pytest.raises(OSError), socket.socket(socket.AF_UNIX) as gone:
        gone.connect(server.path)
