"""An MCP server for the conformance kit, over both transports."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette

from core_testing.conformance import ToolServerSample

_START_SECONDS = 20.0


def samples() -> Iterator[ToolServerSample]:
    """Yield a server for each transport."""
    calls = [("echo", {"text": "Grüße"}, "Grüße", False), ("fail", {}, "fail", True)]
    slow = ("wait", {"seconds": 60})
    yield ToolServerSample("streamable HTTP", lambda: _serve(_server().streamable_http_app(), "/mcp"), calls, slow)
    yield ToolServerSample("server-sent events", lambda: _serve(_server().sse_app(), "/sse"), calls, slow)


def _server() -> MCPServer:
    server = MCPServer("kit", log_level="CRITICAL")

    @server.tool()
    def echo(text: str) -> str:
        """Says it again."""
        return text

    @server.tool()
    def fail() -> str:
        raise ValueError("as it is meant to")

    @server.tool()
    async def wait(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "over"

    return server


@contextmanager
def _serve(app: Starlette, path: str) -> Iterator[str]:
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + _START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise RuntimeError("the kit's MCP server does not start")
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}{path}"
    finally:
        server.should_exit = True
        thread.join(10)
