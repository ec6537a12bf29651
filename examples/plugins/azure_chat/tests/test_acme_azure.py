from __future__ import annotations

import asyncio
import json

import pytest
from acme_core_azure.ask import chat_request
from acme_core_azure.bodies import ChatBody
from acme_core_azure.chunks import ChatJob
from acme_core_azure.routes import AzureRoutes

from core.api import Delta, Finish, Reasoning, RequestError, Text, ToolArguments, ToolEnd, ToolStart, Usage

CALL = (ToolStart(0, "weather"), ToolArguments(0, '{"city": '), ToolArguments(0, '"Paris"}'), ToolEnd(0))
HELLO = [{"role": "user", "content": "hi"}]


class Scripted:
    """An answer that says what it is told to."""

    id, usage, fitted = "chatcmpl-1", Usage(prompt=5, completion=3), False

    def __init__(self, *steps, finish=None):
        self.steps, self.finish = steps, finish or Finish("stop")

    def call_id(self, name, number):
        return f"{name}_{number}"

    async def run(self, take, more=None):
        for number, events in enumerate(self.steps):
            last = number == len(self.steps) - 1
            if not take([Delta(0, events, (number,), self.finish if last else None)]) and more is not None:
                await more()


class Kept:
    """An outlet that is always behind."""

    def __init__(self):
        self.data, self.waits = b"", 0

    def put(self, data):
        self.data += data
        return False

    async def room(self):
        self.waits += 1


class Served:
    """What the route asks of a server that is not there."""

    model_name = "acme/tiny"

    def unread(self, fields, known):
        return {name: "unread" for name in fields if name not in known}

    async def open(self, request, *, prefix):
        self.asked = request
        return Scripted([Text("Hello")])


class Request:
    def __init__(self, body, deployment="tiny", version="2024-10-21"):
        self._body, self.path_params, self.query = body, {"deployment": deployment}, {"api-version": version}

    async def json(self):
        return dict(self._body)


def whole(*steps, **given):
    return json.loads(asyncio.run(ChatJob(Scripted(*steps, **given), "tiny").collect()))


def streamed(*steps, **given):
    outlet = Kept()
    asyncio.run(ChatJob(Scripted(*steps), "tiny", **given).stream(outlet))
    assert outlet.waits == len(steps)
    return [json.loads(line.removeprefix("data: ")) for line in outlet.data.decode().splitlines() if line]


def route(served=None, **options):
    plugin = AzureRoutes(options)
    plugin.bind(served or Served())
    return plugin


def test_text_and_usage():
    answer = whole([Reasoning("Hm.")], [Text("He")], [Text("llo")])
    (choice,) = answer["choices"]
    assert choice == {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    assert (answer["object"], answer["model"]) == ("chat.completion", "tiny")


def test_a_call_whole_and_in_chunks():
    (choice,) = whole([Text("Let me see.")], CALL)["choices"]
    function = {"name": "weather", "arguments": '{"city": "Paris"}'}
    assert choice["message"]["tool_calls"] == [{"id": "weather_0", "type": "function", "function": function}]
    assert choice["finish_reason"] == "tool_calls"
    deltas = [chunk["choices"][0]["delta"] for chunk in streamed(*([event] for event in CALL))]
    assert [delta["tool_calls"][0]["function"]["arguments"] for delta in deltas[:3]] == ["", '{"city": ', '"Paris"}']
    assert deltas[3] == {}


@pytest.mark.parametrize("usage", [False, True])
def test_the_chunks_of_a_stream(usage):
    chunks = streamed([Text("He")], [Text("llo")], usage=usage)
    told = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    assert [choice["delta"] for choice in told] == [{"role": "assistant", "content": "He"}, {"content": "llo"}]
    assert [choice["finish_reason"] for choice in told] == [None, "stop"]
    assert ("usage" in chunks[-1]) is usage


def test_fields_and_their_names():
    schema = {"type": "object"}
    body = ChatBody(messages=HELLO, max_completion_tokens=7, stop=".", response_format=_format(schema))
    asked = chat_request(body)
    assert (asked.sampling["max_tokens"], asked.sampling["stop"], asked.structured) == (7, ".", {"json": schema})
    assert asked.names["max_tokens"] == "max_completion_tokens"
    with pytest.raises(RequestError, match=r"response_format.json_schema.schema must be a schema"):
        chat_request(ChatBody(messages=HELLO, response_format=_format(None)))


def test_the_path_says_which_deployment_is_asked():
    served = Served()
    reply = asyncio.run(route(served).chat(Request({"model": "gpt-4o", "messages": HELLO, "stream": True, "x": 1})))
    assert reply.stream and reply.headers == {"x": "unread"} and served.asked.messages == HELLO
    plugin = route(deployments=["gpt-4o", "mini"])
    assert not asyncio.run(plugin.chat(Request({"messages": HELLO}, "mini"))).stream
    for request, code in ((Request({}, "tiny"), "DeploymentNotFound"), (Request({}, "mini", ""), "404")):
        with pytest.raises(RequestError) as caught:
            asyncio.run(plugin.chat(request))
        assert (caught.value.status, caught.value.code) == (404, code)


def _format(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
