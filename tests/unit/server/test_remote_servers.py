"""Which tool servers may be spoken to, and what becomes of sessions that go wrong."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from core_plugin_tool_servers.options import ToolOptions
from core_plugin_tool_servers.servers import RemoteServers, check_headers, remote_servers
from core_plugin_tool_servers.sessions import AT_ONCE, MAX_LIST_BYTES, MAX_TOOLS, RemoteSessions, unseen
from core_plugin_tool_servers.urls import read_address, read_pattern

from core.api import ConfigError, RemoteTool, ToolResult, ToolServerError
from core.api.tool_servers import ToolEndpoint


@pytest.mark.covers("TOOL-04")
@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (
            "https://mcp.example.com",
            ["https://mcp.example.com", "https://MCP.example.com/a/b?x=1", "https://mcp.example.com:443/"],
            ["http://mcp.example.com", "https://mcp.example.com:8443/", "https://mcp.example.com.evil.org/"],
        ),
        (
            "https://*.example.com/mcp",
            ["https://a.example.com/mcp", "https://a.b.example.com/mcp/tools"],
            [
                "https://example.com/mcp",
                "https://evilexample.com/mcp",
                "https://a.example.com/mcpx",
                "https://evil.org/a.example.com/mcp",
                "https://a.example.com/",
            ],
        ),
        (
            "http://127.0.0.1:*/mcp/",
            ["http://127.0.0.1:9000/mcp", "http://127.0.0.1/mcp/x"],
            ["http://127.0.0.2:9000/mcp", "http://127.0.0.1:9000/", "http://2130706433:9000/mcp"],
        ),
        ("http://[::1]:8080", ["http://[::1]:8080/x"], ["http://[::2]:8080/x", "http://[::1]/x"]),
    ],
)
def test_patterns_allow_what_they_say(pattern, yes, no):
    allowed = read_pattern(pattern)
    assert all(allowed.allows(read_address(url)) for url in yes)
    assert not any(allowed.allows(read_address(url)) for url in no)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "https://",
        "https://user:secret@example.com/",
        "https://example.com\\@evil.org/",
        "https://example.com/#fragment",
        "https://example.com/a/../b",
        "https://example.com/a/%2e%2E/b",
        "https://example.com/a%2f..%2fb",
        "https://example.com/a/..%5cb",
        "https://example.com/a/..;/b",
        "https://example.com/a/.;x=1/b",
        "https://example.com/a/%252e%252e/b",
        "https://example.com/a/%zz",
        "https://example.com:0/",
        "https://example.com:65536/",
        "https://exa mple.com/",
        "https://example.com/\n",
        "https://ex\u0430mple.com/",
        "https://example.com/" + "a" * 3000,
        "",
    ],
)
def test_addresses_that_parsers_may_read_in_two_ways_are_none(url):
    with pytest.raises(ValueError, match="must"):
        read_address(url)


@pytest.mark.parametrize("pattern", ["https://*", "https://a.*.com", "*", "https://*/x", "https://e.com/*", "e.com"])
def test_patterns_name_their_hosts(pattern):
    with pytest.raises(ValueError, match="must"):
        read_pattern(pattern)


def test_addresses_are_shown_without_their_queries():
    assert read_address("https://Example.com:443/a?key=secret").shown == "https://example.com/a"
    assert read_address("http://example.com:8000").shown == "http://example.com:8000/"
    assert "secret" not in repr(ToolEndpoint("https://e.com/?key=secret", {"a": "secret"}))


@pytest.mark.parametrize(
    "headers",
    [{"Host": "x"}, {"content-length": "5"}, {"MCP-Session-Id": "x"}, {"a b": "x"}, {"a": "x\r\nb: y"}, {"a": 5}, []],
)
def test_headers_that_belong_to_the_connection(headers):
    with pytest.raises(ValueError, match=r"^(must|has)") as refused:
        check_headers(headers)
    assert "x\r" not in str(refused.value)


class Plan:
    """What a route plugin declares to: its settings, and one client that remembers its options."""

    def __init__(self, options, installed=True):
        self.options, self.installed = options, installed

    def chosen(self, group):
        assert group == "core.tool_servers"
        return [SimpleNamespace(value=("client", {"k": 1}), fit=unseen)] if self.installed else []

    @property
    def settings(self):
        return self.options.model_dump()


def test_options_become_servers():
    options = ToolOptions(
        mcp_server=["docs=https://e.com/mcp?key=1"],
        mcp_headers={"docs": {"X-Key": "mine"}},
        allow_mcp_url=["https://*.e.org"],
        mcp_timeout=5,
    )
    servers = remote_servers(Plan(options))
    assert (servers.client, servers.timeout) == (("client", {"k": 1}), 5)
    found = servers.endpoint("docs", None, {"x-key": "theirs", "Y": "2"})
    assert (found.url, found.headers, found.shown) == (
        "https://e.com/mcp?key=1",
        {"Y": "2", "X-Key": "mine"},
        None,
    )
    assert servers.endpoint("other", "https://a.e.org/x?q", {}).shown == "https://a.e.org/x"
    for label, url in (("docs", "https://a.e.org/"), ("none", None), ("other", "https://e.com/mcp"), ("other", "x")):
        with pytest.raises(ValueError):
            servers.endpoint(label, url, {})
    assert remote_servers(Plan(ToolOptions(), installed=False)) is None


@pytest.mark.parametrize(
    "options",
    [
        {"mcp_server": ["https://e.com"]},
        {"mcp_server": ["a b=https://e.com"]},
        {"mcp_server": ["a=https://e.com", "a=https://e.com"]},
        {"mcp_server": ["a=file:///etc/passwd"]},
        {"mcp_server": ["a=https://e.com"], "mcp_headers": {"b": {}}},
        {"mcp_server": ["a=https://e.com"], "mcp_headers": {"a": {"Host": "secret"}}},
        {"allow_mcp_url": ["https://*"]},
    ],
)
def test_wrong_options_end_the_start(options):
    with pytest.raises(ConfigError) as refused:
        remote_servers(Plan(ToolOptions(**options)))
    assert refused.value.code == "CORE-C195"
    assert "secret" not in str(refused.value)


class Session:
    def __init__(self, tools=(), result=None, error=None, seconds=0.0):
        self.tools, self.result, self.error, self.seconds = tools, result, error, seconds
        self.closed = 0

    async def list_tools(self):
        return await self._give(self.tools)

    async def call_tool(self, name, arguments):
        return await self._give(self.result)

    async def _give(self, value):
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return value

    async def close(self):
        self.closed += 1
        raise RuntimeError("closing fails too")


class Client:
    def __init__(self, session):
        self.session, self.opened = session, 0

    async def open(self, url, headers):
        self.opened += 1
        return self.session


def speak(session, use, **limits):
    client = Client(session)

    async def go():
        sessions = RemoteSessions(RemoteServers(client, {}, **limits), {"a": ToolEndpoint("https://e.com")})
        try:
            return await use(sessions)
        finally:
            await sessions.close()

    return asyncio.run(go()), client


def fails(session, use, **limits):
    with pytest.raises(ToolServerError) as failed:
        speak(session, use, **limits)
    return failed.value


def test_one_session_serves_an_answer():
    session = Session([RemoteTool("t")], ToolResult("é\ud800"))

    async def use(sessions):
        results = await asyncio.gather(*(sessions.call("a", "t", "{}") for _ in range(3)))
        return [one.text for one in results], [tool.name for tool in await sessions.tools("a")]

    (texts, names), client = speak(session, use)
    assert (texts, names) == (["é?"] * 3, ["t"])
    assert (client.opened, session.closed) == (1, 1)


def test_calls_wait_for_each_other():
    session, most = Session(result=ToolResult("ok"), seconds=0.001), []

    async def call_tool(name, arguments):
        most.append(session.running + 1)
        session.running += 1
        try:
            return await Session.call_tool(session, name, arguments)
        finally:
            session.running -= 1

    session.running, session.call_tool = 0, call_tool

    async def use(sessions):
        return await asyncio.gather(*(sessions.call("a", "t", "{}") for _ in range(3 * AT_ONCE)))

    assert len(speak(session, use)[0]) == len(most) == 3 * AT_ONCE
    assert max(most) == AT_ONCE


@pytest.mark.parametrize("arguments", ["", "null", "[1]", '{"a": ', "5"])
def test_arguments_are_objects(arguments):
    session = Session(result=ToolResult("ok"))

    async def use(sessions):
        return await sessions.call("a", "t", arguments)

    if arguments == "":
        assert speak(session, use)[0].text == "ok"
    else:
        assert fails(session, use).code == -32602


def test_what_goes_wrong_is_a_tool_server_error(caplog):
    async def call(sessions):
        return await sessions.call("a", "t", "{}")

    assert fails(Session(seconds=5), call, timeout=0.01).code == -32001
    assert fails(Session(error=ToolServerError("no\ud800", kind="http", code=401)), call).message == "no?"
    odd = fails(Session(error=RuntimeError("https://e.com/?key=secret")), call)
    assert "secret" not in odd.message + caplog.text
    assert "RuntimeError" in caplog.text


@pytest.mark.parametrize(
    "tools",
    [
        [RemoteTool(f"t{number}") for number in range(MAX_TOOLS + 1)],
        [RemoteTool("")],
        [RemoteTool("x" * 300)],
        [RemoteTool("\ud800")],
        [RemoteTool("t", None, ["no schema"])],
        [RemoteTool("t", None, {}, "no hints")],
        [RemoteTool("t", "x" * MAX_LIST_BYTES)],
        [RemoteTool("t", None, {"a": object()})],
        [RemoteTool("t", None, {"a": "\ud800"})],
    ],
)
def test_lists_that_cannot_be_used(tools):
    async def use(sessions):
        return await sessions.tools("a")

    assert fails(Session(tools), use).message
