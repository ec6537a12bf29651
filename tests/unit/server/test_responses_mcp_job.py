"""Answers that call tools themselves, in memory: what breaks off, what goes on, and what is added up."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import httpx
import pytest
from core_plugin_openai.responses.ask import read_asked
from core_plugin_openai.responses.create import remote_job
from core_plugin_tool_servers.servers import RemoteServers
from openai.types.responses import Response, ResponseStreamEvent
from starlette.requests import Request

from core.api import RemoteTool, ToolResult, ToolServerError
from core.api.errors import EngineError
from core.api.tool_servers import ToolEndpoint
from core.server.plugin_routes.response import PluginRequest

PATH = "/v1/responses"
MINE = {"type": "mcp", "server_label": "mine", "require_approval": "never"}
CALL = '<mine__echo:{"text":"%s"}>'


class Tools:
    """Client, session and server in one. `echo` gives back its text.

    Attributes:
        before: Called in front of each call and list.
    """

    def __init__(self):
        self.calls, self.closed, self.opened = [], 0, 0
        self.before = None

    async def open(self, url, headers):
        self.opened += 1
        return self

    async def list_tools(self):
        await self._wait("list")
        return [RemoteTool("echo", "Says it again.", {"type": "object"})]

    async def call_tool(self, name, arguments):
        self.calls.append((name, arguments))
        await self._wait("call")
        return ToolResult(arguments["text"])

    async def close(self):
        self.closed += 1

    async def _wait(self, what):
        if self.before is not None:
            await self.before(what)


def spoken_to(api, servers):
    """Let an application's responses speak to servers."""
    routes = api.app.state.plugins["responses"]
    routes.shared = replace(routes.shared, servers=servers)


@pytest.fixture
def tools():
    return Tools()


@pytest.fixture
def talk(fake, build, parser, tools):
    """`talk(*replies)` makes an application whose model says these, one after the other, and returns both."""

    def make(*replies, **options):
        llm, left, given = fake(), list(replies), {"remote": {}, **options}
        answer = llm.answer

        def next_reply(request, ids):
            llm.reply = left.pop(0)
            return answer(request, ids)

        llm.answer = next_reply
        limits = given.pop("remote")
        api = build(llm, parser=parser, **given)
        spoken_to(api, RemoteServers(tools, {"mine": ToolEndpoint("https://e.com")}, **limits))
        return llm, api

    return make


def events_of(answer):
    found = [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n") if line.startswith("data: ")]
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def ask(api, strict, **fields):
    """Ask for a stream and return its events, each of which the official client knows."""
    answer = api.post(PATH, {"input": "Hi", "tools": [MINE], "stream": True, **fields})
    assert answer.status_code == 200, answer.text
    events = events_of(answer)
    for event in events:
        strict(ResponseStreamEvent, event)
    return events


def kinds(response):
    return [(item["type"], item.get("status")) for item in response["output"]]


def test_every_turn_is_known_by_the_id_of_the_answer(talk, tools):
    """An operator who ends an answer knows its id alone, whichever turn it is in."""
    llm, api = talk(CALL % "a", "Done.")
    shown, saying = [], llm.answer

    def answering(request, ids):
        shown.append(dict(api.app.state.core.shown))
        return saying(request, ids)

    llm.answer = answering
    answer = api.post(PATH, {"input": "Hi", "tools": [MINE]}).json()
    assert [set(names.values()) for names in shown] == [{answer["id"]}] * 2
    assert [list(names) for names in shown] == [[answer["id"]], [f"{answer['id']}-1"]]


@pytest.mark.covers("TOOL-04")
def test_turns_are_one_answer(talk, tools, strict):
    llm, api = talk(f"(hm)Look.{CALL % 'a'}{CALL % 'b'}", f"({'so'}){CALL % 'c'}", "Done.")
    llm.cached = 3
    whole = api.post(PATH, {"input": "Hi", "tools": [MINE], "max_output_tokens": 400}).json()
    strict(Response, whole)
    assert kinds(whole) == [
        ("mcp_list_tools", None),
        ("reasoning", "completed"),
        ("message", "completed"),
        *[("mcp_call", "completed")] * 2,
        ("reasoning", "completed"),
        ("mcp_call", "completed"),
        ("message", "completed"),
    ]
    assert [arguments["text"] for _, arguments in tools.calls] == ["a", "b", "c"]
    assert (tools.opened, tools.closed) == (1, 1)
    replies = sum(len(request["ids"]) for request in llm.requests)
    assert whole["usage"]["input_tokens"] == replies
    assert whole["usage"]["input_tokens_details"]["cached_tokens"] == 9
    assert whole["usage"]["output_tokens"] == len(f"(hm)Look.{CALL % 'a'}{CALL % 'b'}(so){CALL % 'c'}Done.")
    assert [request["params"].max_tokens for request in llm.requests[:1]] == [400]
    assert llm.requests[2]["params"].max_tokens < llm.requests[1]["params"].max_tokens < 400
    assert len({request["id"] for request in llm.requests}) == 3
    last = llm.rendered[-1]["messages"]
    assert [message["role"] for message in last] == ["user", "assistant", "tool", "tool", "assistant", "tool"]
    assert [one["content"] for one in last if one["role"] == "tool"] == ["a", "b", "c"]
    ids = [call["id"] for message in last for call in message.get("tool_calls", ())]
    assert len(set(ids)) == 3


def test_token_ids_of_all_turns(talk, strict):
    _, api = talk(CALL % "a", "Done.")
    events = events_of(api.post(PATH, {"input": "Hi", "tools": [MINE], "return_token_ids": True, "stream": True}))
    said = (CALL % "a" + "Done.").encode()
    assert bytes(token for event in events for token in event.get("token_ids", ())) == said
    assert bytes(events[-1]["response"]["token_ids"]) == said
    assert events[-1]["response"]["prompt_token_ids"][1:] == list(b"[user]Hi")


def test_a_prompt_that_grows_too_long(talk, tools, strict):
    _, api = talk(CALL % ("x" * 480), "never said")
    failed = ask(api, strict, input="Hi" * 40)[-1]
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"]["code"] == "invalid_prompt"
    assert kinds(failed["response"]) == [("mcp_list_tools", None), ("mcp_call", "completed")]
    assert tools.closed == 1
    whole = talk(CALL % ("x" * 480), "never said")[1].post(PATH, {"input": "Hi" * 40, "tools": [MINE]})
    assert (whole.status_code, whole.json()["error"]["code"]) == (400, "context_length_exceeded")


def test_an_engine_that_dies_in_a_later_turn(talk, tools, strict):
    llm, api = talk(CALL % "a", "Done.")

    async def break_engine(what):
        if what == "call":
            llm.fail_at, llm.failure = 2, EngineError("CORE-E110", "gone")

    tools.before = break_engine
    failed = ask(api, strict)[-1]
    assert failed["type"] == "response.failed"
    assert kinds(failed["response"])[-1] == ("message", "incomplete")
    assert tools.closed == 1


def test_a_server_that_drains_finishes_what_it_began(talk, tools, strict):
    _, api = talk(CALL % "a", "Done.")
    lifecycle = api.app.state.core.lifecycle

    async def drain(what):
        lifecycle.draining = True

    tools.before = drain
    assert ask(api, strict)[-1]["type"] == "response.completed"
    refused = api.post(PATH, {"input": "Hi", "tools": [MINE]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")


@pytest.mark.parametrize("where", ["list", "call"])
def test_cancelled_while_a_server_is_asked(talk, tools, strict, where):
    llm, api = talk(CALL % "a", "Done.", response_store=5)
    asked = asyncio.Event()

    async def hang(what):
        if what == where:
            asked.set()
            await asyncio.sleep(60)

    tools.before = hang

    async def go():
        transport = httpx.ASGITransport(api.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            body = {"input": "Hi", "tools": [MINE], "background": True}
            made = (await client.post(PATH, json=body)).json()
            assert made["status"] in ("queued", "in_progress")
            await asyncio.wait_for(asked.wait(), 10)
            over = (await client.post(f"{PATH}/{made['id']}/cancel")).json()
            return over, await client.get(f"{PATH}/{made['id']}?stream=true")

    over, stream = asyncio.run(go())
    assert over["status"] == "cancelled" and tools.closed == 1
    events = events_of(stream)
    for event in events:
        strict(ResponseStreamEvent, event)
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == over["output"]
    if where == "list":
        assert over["output"][0]["error"] == "The answer ended before the server answered."
        assert llm.requests == []
    else:
        assert kinds(over)[-1] == ("mcp_call", "incomplete")


def test_a_list_that_fails(talk, tools, strict):
    async def fail(what):
        raise ToolServerError("gone", kind="http", code=502)

    tools.before = fail
    _, api = talk("No tools.")
    events = ask(api, strict)
    assert [event["type"] for event in events][3:5] == [
        "response.mcp_list_tools.in_progress",
        "response.mcp_list_tools.failed",
    ]
    assert events[-1]["response"]["output"][0]["error"] == "gone"
    counted = api.post(f"{PATH}/input_tokens", {"input": "Hi", "tools": [MINE]})
    assert (counted.status_code, counted.json()["error"]["code"]) == (400, "mcp_list_failed")


def test_rounds_have_an_end(talk, tools, strict):
    _, api = talk(CALL % "a", CALL % "b", CALL % "c", remote={"rounds": 2})
    last = ask(api, strict)[-1]["response"]
    assert [arguments["text"] for _, arguments in tools.calls] == ["a", "b"]
    assert kinds(last)[-1] == ("message", "completed")


def test_slow_readers_hold_the_work_back(talk, tools, strict):
    llm, api = talk("x" * 200)

    async def go():
        shared = api.app.state.plugins["responses"].shared
        request = httpx.Request("POST", "http://test/", json={"input": "Hi", "tools": [MINE]})

        async def receive():
            return {"type": "http.request", "body": request.content, "more_body": False}

        raw = [(name.lower(), value) for name, value in request.headers.raw]
        scope = {"type": "http", "method": "POST", "path": PATH, "query_string": b"", "headers": raw}
        asked = await read_asked(shared, PluginRequest(Request(scope, receive), api.app.state.core))
        job, taken = remote_job(shared, asked), []

        def put(events):
            taken.extend(events)
            return len(taken) < 20

        work = asyncio.create_task(job.run(put, asyncio.Event().wait))
        await asyncio.sleep(0.05)
        assert 0 < len(taken) < 40 and not work.done()
        work.cancel()
        await asyncio.wait((work,))
        return job

    job = asyncio.run(go())
    assert llm.running == 0 and tools.closed == 1
    assert job.cancelled()[-1]["response"]["status"] == "cancelled"
