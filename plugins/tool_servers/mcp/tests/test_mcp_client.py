"""What the client makes of MCP: pages, content of every kind, and answers without an end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import httpx2
import pytest
from core_plugin_mcp.client import MAX_PAGES, McpClient, McpSession
from core_plugin_mcp.conformance import samples
from core_plugin_mcp.content import result_text
from core_plugin_mcp.faults import as_server_error
from core_plugin_mcp.http import BoundedTransport, TooLargeError
from core_plugin_mcp.options import McpOptions
from mcp import MCPError
from mcp.types import (
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from core.api import ToolServerError


def test_content_of_every_kind_is_text():
    content = [
        TextContent(text="Hello"),
        ImageContent(data="QQ==", mime_type="image/png"),
        EmbeddedResource(resource=TextResourceContents(uri="file:///a", text="inside")),
        ResourceLink(name="manual", uri="https://e.com/m"),
    ]
    text = result_text(CallToolResult(content=content, structured_content={"a": 1}))
    assert text == "Hello\n[image: image/png]\ninside\n[a link: manual https://e.com/m]"
    assert result_text(CallToolResult(content=[], structured_content={"ä": [1]})) == '{"ä": [1]}'
    assert result_text(CallToolResult(content=[])) == ""


def paged(pages):
    """A session whose server has so many pages of tools."""

    async def list_tools(*, cursor):
        number = int(cursor or 0)
        tool = SimpleNamespace(name=f"t{number}", description=None, input_schema={}, annotations=None)
        return SimpleNamespace(tools=[tool], next_cursor=str(number + 1) if number + 1 < pages else None)

    async def go():
        session = McpSession("http://127.0.0.1/mcp", {}, McpOptions())
        session._ready.set_result(SimpleNamespace(list_tools=list_tools))
        session._task = asyncio.create_task(asyncio.sleep(60))
        try:
            return [tool.name for tool in await session.list_tools()]
        finally:
            session._task.cancel()

    return asyncio.run(go())


def test_lists_come_in_pages():
    assert paged(3) == ["t0", "t1", "t2"]
    with pytest.raises(ToolServerError, match="pages"):
        paged(MAX_PAGES + 1)


class Endless(httpx2.AsyncByteStream):
    async def __aiter__(self):
        while True:
            yield b"x" * 1000

    async def aclose(self):
        pass


@pytest.mark.parametrize("headers", [{}, {"content-encoding": "gzip"}])
def test_answers_are_bounded(headers):
    seen = []

    async def answer(request):
        seen.append(request.headers["accept-encoding"])
        return httpx2.Response(200, headers=headers, stream=Endless())

    async def go():
        transport = BoundedTransport(httpx2.MockTransport(answer), 5000)
        async with httpx2.AsyncClient(transport=transport) as client:
            await client.get("http://e.com/")

    with pytest.raises(TooLargeError):
        asyncio.run(go())
    assert seen == ["identity"]


@pytest.mark.parametrize(
    ("error", "kind", "code", "text"),
    [
        (MCPError(-32000, "not today"), "protocol", -32000, "not today"),
        (httpx2.ConnectError("to https://e.com/?key=secret"), "protocol", -32603, "ConnectError"),
        (RuntimeError("secret"), "protocol", -32603, "RuntimeError"),
        (TooLargeError("secret"), "protocol", -32603, "max_answer_bytes"),
        (ExceptionGroup("g", [ExceptionGroup("h", [MCPError(5, "inner")])]), "protocol", 5, "inner"),
        (
            httpx2.HTTPStatusError("secret", request=httpx2.Request("GET", "http://e"), response=httpx2.Response(401)),
            "http",
            401,
            "401",
        ),
    ],
)
def test_whatever_goes_wrong_is_one_error(error, kind, code, text):
    with pytest.raises(ToolServerError) as failed, as_server_error():
        raise error
    assert (failed.value.kind, failed.value.code) == (kind, code)
    assert text in failed.value.message and "secret" not in failed.value.message


def test_a_cancellation_is_no_error_of_the_server():
    with pytest.raises(BaseExceptionGroup), as_server_error():
        raise BaseExceptionGroup("g", [asyncio.CancelledError(), MCPError(1, "x")])


def test_the_kits_servers_work_over_both_transports():
    async def go(url):
        session = await McpClient({"connect_seconds": 5}).open(url, {})
        try:
            return [tool.name for tool in await session.list_tools()]
        finally:
            await session.close()

    for sample in samples():
        with sample.serve() as url:
            assert asyncio.run(go(url)) == ["echo", "fail", "wait"]
