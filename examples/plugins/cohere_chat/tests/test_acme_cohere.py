from __future__ import annotations

import asyncio
import json

import pytest
from acme_core_cohere.ask import chat_request
from acme_core_cohere.bodies import ChatBody
from acme_core_cohere.events import ChatJob

from core.api import Delta, Finish, Reasoning, RequestError, Text, ToolArguments, ToolEnd, ToolStart, Usage

CALL = (ToolStart(0, "weather"), ToolArguments(0, '{"city": '), ToolArguments(0, '"Paris"}'), ToolEnd(0))


class Scripted:
    """An answer that says what it is told to."""

    id, usage, fitted = "chat-1", Usage(prompt=5, completion=3), False

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


def whole(*steps, **given):
    return json.loads(asyncio.run(ChatJob(Scripted(*steps, **given)).collect()))


def streamed(*steps):
    outlet = Kept()
    asyncio.run(ChatJob(Scripted(*steps)).stream(outlet))
    return [json.loads(line.removeprefix("data: ")) for line in outlet.data.decode().splitlines() if "data: " in line]


def test_text_and_usage():
    answer = whole([Text("He")], [Text("llo")])
    assert answer["message"] == {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]}
    assert (answer["finish_reason"], answer["usage"]["tokens"]) == ("COMPLETE", {"input_tokens": 5, "output_tokens": 3})


def test_a_plan_and_a_call():
    answer = whole([Reasoning("Look it up.")], CALL)
    call = {"id": "weather_0", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    assert answer["message"] == {"role": "assistant", "tool_plan": "Look it up.", "tool_calls": [call]}
    assert answer["finish_reason"] == "TOOL_CALL"


@pytest.mark.parametrize(
    ("finish", "reason"),
    [(Finish("length"), "MAX_TOKENS"), (Finish("stop", "\n"), "STOP_SEQUENCE"), (Finish("abort"), "ERROR")],
)
def test_why_it_ended(finish, reason):
    assert whole([Text("x")], finish=finish)["finish_reason"] == reason


def test_the_events_of_a_stream():
    kinds = [event["type"] for event in streamed([Text("Let me see.")], CALL)]
    content = ["content-start", "content-delta", "content-end"]
    call = ["tool-call-start", "tool-call-delta", "tool-call-delta", "tool-call-end"]
    assert kinds == ["message-start", *content, *call, "message-end"]


def test_fields_and_their_names():
    turns = [{"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "a", "content": [_document("sunny")]}]
    body = ChatBody(messages=turns, p=0.5, k=3, stop_sequences=["."], response_format={"type": "json_object"})
    asked = chat_request(body)
    assert (asked.sampling["top_p"], asked.sampling["top_k"], asked.sampling["stop"]) == (0.5, 3, ["."])
    assert asked.messages[1]["content"] == [{"type": "text", "text": "sunny"}]
    assert asked.structured == {"json_object": True} and asked.names["top_p"] == "p"
    with pytest.raises(RequestError, match=r"messages\[0\].content\[0\] must be a text"):
        chat_request(ChatBody(messages=[{"role": "user", "content": [{"type": "image_url"}]}]))


def _document(text):
    return {"type": "document", "document": {"data": text}}
