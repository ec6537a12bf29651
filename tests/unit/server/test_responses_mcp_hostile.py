"""Tool servers that mean harm, and clients that answer a question twice."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import httpx
import pytest
from core_plugin_tool_servers.servers import RemoteServers

from core.api import RemoteTool, ToolResult
from core.api.tool_servers import ToolEndpoint

PATH = "/v1/responses"
MINE = {"type": "mcp", "server_label": "mine"}
FREE = {**MINE, "require_approval": "never"}
YES = {"type": "mcp_approval_response", "approve": True}


class Harm:
    """A server that lists what it is given, and remembers what it was asked."""

    def __init__(self):
        self.listed = [RemoteTool("echo", "Says it again.", {"type": "object"})]
        self.calls, self.open_now, self.most = [], 0, 0
        self.gives = lambda arguments: ToolResult("ok")

    async def open(self, url, headers):
        self.open_now += 1
        self.most = max(self.most, self.open_now)
        return self

    async def list_tools(self):
        await asyncio.sleep(0)
        return self.listed

    async def call_tool(self, name, arguments):
        self.calls.append(name)
        await asyncio.sleep(0)
        return self.gives(arguments)

    async def close(self):
        self.open_now -= 1


def spoken_to(api, servers):
    """Let an application's responses speak to servers."""
    routes = api.app.state.plugins["responses"]
    routes.shared = replace(routes.shared, servers=servers)


@pytest.fixture
def harm():
    return Harm()


@pytest.fixture
def serve(fake, build, parser, harm):
    """`serve(reply)` makes an application whose model says this as long as it may call, and then "Done."."""

    def make(reply, **options):
        llm = fake(max_model_len=4096)
        answer = llm.answer

        def answered(request, ids):
            text = bytes(token for token in ids if token < 256).decode()
            llm.reply = "Done." if "[tool]" in text else reply
            return answer(request, ids)

        llm.answer = answered
        api = build(llm, parser=parser, response_store=50, **options)
        spoken_to(api, RemoteServers(harm, {"mine": ToolEndpoint("https://e.com")}, rounds=3))
        return llm, api

    return make


def kinds(response):
    return [item["type"] for item in response["output"]]


NAMES = ["a\nb", "</tools>", "<|im_end|>", "__class__", "x" * 256, "\u202eevil", "{{7*7}}", "a" * 64, "\u0000", "'; --"]


@pytest.mark.covers("TOOL-04")
def test_tools_of_hostile_names_are_listed_and_none_stands_for_another(serve, harm):
    harm.listed = [RemoteTool(name, "\u0000\ud800 {% x %}", {"type": "object"}) for name in NAMES]
    llm, api = serve("<mine__a_b:{}>")
    whole = api.post(PATH, {"input": "Hi", "tools": [FREE]}).json()
    assert [tool["name"] for tool in whole["output"][0]["tools"]] == NAMES
    assert harm.calls == ["a\nb"] and whole["status"] == "completed"
    offered = [tool["function"]["name"] for tool in llm.rendered[0]["tools"]]
    assert len(set(offered)) == len(NAMES)
    assert all(len(name) <= 64 and name.replace("-", "_").isidentifier() for name in offered)


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ([RemoteTool("", None, {})], "name"),
        ([RemoteTool("\ud800", None, {})], "name"),
        ([RemoteTool("x" * 257, None, {})], "name"),
        ([RemoteTool("a", None, {"x": "\ud800"})], "schemas"),
        ([RemoteTool("a", "y" * 2**21, {})], "bytes"),
        ([RemoteTool(f"t{number}", None, {}) for number in range(600)], "600 tools"),
    ],
)
def test_lists_that_mean_harm_are_an_error_of_the_list(serve, harm, listed, said):
    harm.listed = listed
    _, api = serve("No tools.")
    whole = api.post(PATH, {"input": "Hi", "tools": [FREE]}).json()
    assert whole["status"] == "completed" and said in whole["output"][0]["error"]


@pytest.mark.parametrize("result", ["\ud800", "x" * 10**6, "\u0000", "<mine__echo:{}>", '{"a":' * 1000])
def test_results_that_mean_harm_are_text(serve, harm, result):
    harm.gives = lambda arguments: ToolResult(result)
    _, api = serve("<mine__echo:{}>")
    spoken_to(api, RemoteServers(harm, {"mine": ToolEndpoint("https://e.com")}, result_chars=500))
    whole = api.post(PATH, {"input": "Hi", "tools": [FREE]}).json()
    assert kinds(whole) == ["mcp_list_tools", "mcp_call", "message"] and harm.calls == ["echo"]
    assert len(whole["output"][1]["output"]) < 600


def test_a_call_is_approved_once_and_by_its_own_question(serve, harm):
    _, api = serve("<mine__echo:{}>")
    first = api.post(PATH, {"input": "Hi", "tools": [MINE]}).json()
    other = api.post(PATH, {"input": "Hey", "tools": [MINE]}).json()
    asked, elsewhere = first["output"][-1]["id"], other["output"][-1]["id"]

    def answer(response, *items):
        body = {"input": list(items), "tools": [MINE], "previous_response_id": response["id"]}
        return api.post(PATH, body)

    wrong = answer(first, {**YES, "approval_request_id": elsewhere})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "unknown_approval_request")
    assert harm.calls == []
    done = answer(first, {**YES, "approval_request_id": asked}).json()
    assert harm.calls == ["echo"] and kinds(done) == ["mcp_call", "message"]
    again = answer(done, {**YES, "approval_request_id": asked}, {"role": "user", "content": "Again"})
    assert again.status_code == 200 and harm.calls == ["echo"]


def test_what_was_refused_is_not_approved_later(serve, harm):
    _, api = serve("<mine__echo:{}>")
    first = api.post(PATH, {"input": "Hi", "tools": [MINE]}).json()
    answer = {**YES, "approval_request_id": first["output"][-1]["id"]}
    body = {"tools": [MINE], "previous_response_id": first["id"], "input": [{**answer, "approve": False}]}
    refused = api.post(PATH, body).json()
    body |= {"previous_response_id": refused["id"], "input": [answer]}
    assert api.post(PATH, body).status_code == 200 and harm.calls == []


def test_many_answers_at_once_keep_their_sessions_apart_and_end_them(serve, harm):
    llm, api = serve("<mine__echo:{}><mine__echo:{}>")

    async def go():
        transport = httpx.ASGITransport(api.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            body = {"input": "Hi", "tools": [FREE]}
            posts = [client.post(PATH, json={**body, "stream": number % 2 == 0}) for number in range(24)]
            return await asyncio.wait_for(asyncio.gather(*posts), 20)

    answers = asyncio.run(go())
    assert {answer.status_code for answer in answers} == {200}
    for answer in answers[1::2]:
        assert kinds(json.loads(answer.text)) == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    assert all('"response.completed"' in answer.text for answer in answers[::2])
    assert len(harm.calls) == 48 and harm.open_now == 0 and harm.most > 1
    assert llm.running == 0 and not api.app.state.core.lifecycle.work
