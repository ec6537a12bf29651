"""The client: one session per server and answer, held by a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from core.api import RemoteTool, ToolResult, ToolServerError
from core_plugin_mcp.content import result_text
from core_plugin_mcp.faults import as_server_error
from core_plugin_mcp.http import http_client
from core_plugin_mcp.options import McpOptions

MAX_PAGES = 64
_QUIET = MappingProxyType({"httpx2": logging.WARNING, "mcp": logging.CRITICAL})
"""Loggers that would write addresses, whose queries may hold keys, and what servers say."""


class McpClient:
    """Opens sessions."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = McpOptions.model_validate(dict(options))
        for name, level in _QUIET.items():
            logging.getLogger(name).setLevel(level)

    async def open(self, url: str, headers: Mapping[str, str]) -> McpSession:
        """Connect to a server. Raises `ToolServerError`."""
        session = McpSession(url, headers, self._options)
        await session.start()
        return session


class McpSession:
    """A connection.

    The SDK's scopes must be left by the task that entered them, whatever becomes of the tasks that call: a task of the
    session's own does both.
    """

    def __init__(self, url: str, headers: Mapping[str, str], options: McpOptions) -> None:
        self._url, self._headers, self._options = url, headers, options
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect. Raises `ToolServerError`."""
        self._task = asyncio.create_task(self._hold())
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            await self.close()
            raise

    async def list_tools(self) -> Sequence[RemoteTool]:
        """Return every tool, whatever pages they come in. Raises `ToolServerError`."""
        client, found, cursor = await self._client(), [], None
        for _ in range(MAX_PAGES):
            with as_server_error():
                page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                hints = None
                if tool.annotations is not None:
                    hints = tool.annotations.model_dump(mode="json", by_alias=True, exclude_none=True)
                found.append(RemoteTool(tool.name, tool.description, tool.input_schema, hints))
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise ToolServerError(f"The server's list of tools has more than {MAX_PAGES} pages.")

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a tool. Raises `ToolServerError`."""
        client = await self._client()
        with as_server_error():
            result = await client.call_tool(name, dict(arguments))
        return ToolResult(result_text(result), result.is_error)

    async def close(self) -> None:
        """Tell the server that the session is over, and wait until it is."""
        self._over.set()
        task = self._task
        if task is None:
            return
        if not self._ready.done():
            task.cancel()
        try:
            await asyncio.wait((task,))
        finally:  # whoever closes has no more time
            task.cancel()

    async def _client(self) -> Client:
        if self._task is None or self._task.done():
            raise ToolServerError("The connection to the server is closed.")
        return self._ready.result()

    async def _hold(self) -> None:
        try:
            with as_server_error():
                async with contextlib.AsyncExitStack() as stack:
                    client = await stack.enter_async_context(Client(await self._transport(stack)))
                    self._ready.set_result(client)
                    await self._over.wait()
        except ToolServerError as error:
            if not self._ready.done():
                self._ready.set_exception(error)
        finally:
            if not self._ready.done():
                self._ready.cancel()

    async def _transport(self, stack: contextlib.AsyncExitStack) -> Any:
        if urlsplit(self._url).path.rstrip("/").endswith(self._options.sse_suffix):
            return sse_client(self._url, httpx_client_factory=self._sse_http)
        http = await stack.enter_async_context(http_client(self._options, self._headers))
        return streamable_http_client(self._url, http_client=http)

    def _sse_http(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """Make the client that the SDK asks for; its limits of time are those of every server here."""
        return http_client(self._options, self._headers)
