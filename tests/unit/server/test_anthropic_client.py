"""Anthropic's own client against the application, every answer and event validated strictly."""

from __future__ import annotations

import asyncio
from importlib import import_module

import anthropic
import httpx2
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import BaseModel

from core.frontend.answering.staged import staged

HI = [{"role": "user", "content": "Hi"}]
TOOLS = [{"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
REPLY = f"<think>Look it up.</think>\n\nOne moment.\n{CALL}"


def qwen(ctx):
    """Hermes calls behind thinking, as Qwen models write both."""
    families = {}
    for package, name in (("reasoning", "qwen3"), ("hermes", "hermes")):
        prefix = "core_plugin_parsers_reasoning" if package == "reasoning" else "core_plugin_hermes"
        specs = vars(import_module(f"{prefix}.manifest")).values()
        spec = next(one for one in specs if getattr(one, "name", None) == name)
        module, _, attribute = spec.impl.partition(":")
        families[package] = getattr(import_module(module), attribute)
    return staged(families["hermes"], families["reasoning"], closed=False)(ctx)


def known(value):
    """Refuse fields that the client's types do not have."""
    if isinstance(value, BaseModel):
        assert not value.model_extra, f"{type(value).__name__} has no {sorted(value.model_extra)}"
        for name in type(value).model_fields:
            known(getattr(value, name))
    elif isinstance(value, list):
        for item in value:
            known(item)
    return value


def talk(api, call):
    """Run `call(client)` against the application."""

    async def go():
        transport = httpx2.ASGITransport(api.app)
        http = httpx2.AsyncClient(transport=transport)
        async with anthropic.AsyncAnthropic(
            base_url="http://test", api_key="k", http_client=http, max_retries=0, _strict_response_validation=True
        ) as client:
            return await call(client)

    return asyncio.run(go())


@pytest.fixture
def api(build, fake):
    return build(fake(reply=REPLY), parser=qwen, tool_parser="hermes", api_key="k")


@pytest.mark.covers("API-01")
def test_create(build, fake):
    async def call(client):
        return await client.messages.create(model="acme/tiny", max_tokens=50, messages=HI, system="Be brief.")

    message = known(talk(build(fake(reply="Hello")), call))
    assert isinstance(message, Message)
    assert message.content[0].text == "Hello" and message.stop_reason == "end_turn"


@pytest.mark.covers("API-01", "TOOL-01", "REASON-01")
def test_thinking_and_tools(api):
    async def call(client):
        return await client.messages.create(model="acme/tiny", max_tokens=300, messages=HI, tools=TOOLS)

    message = known(talk(api, call))
    thinking, text, use = message.content
    assert thinking.thinking == "Look it up."
    assert text.text.strip() == "One moment."
    assert (use.type, use.name, use.input) == ("tool_use", "get_weather", {"city": "Oslo"})
    assert message.stop_reason == "tool_use"


@pytest.mark.covers("API-01")
def test_the_stream_says_what_the_whole_message_says(api):
    async def whole(client):
        return await client.messages.create(model="acme/tiny", max_tokens=300, messages=HI, tools=TOOLS)

    async def streamed(client):
        seen = []
        async with client.messages.stream(model="acme/tiny", max_tokens=300, messages=HI, tools=TOOLS) as stream:
            async for event in stream:
                seen.append(event.type)
            return seen, await stream.get_final_message()

    kinds, final = talk(api, streamed)
    expected = talk(api, whole).model_dump()
    found = known(final).model_dump()

    def said(message):
        return [
            {name: value for name, value in block.items() if name not in ("id", "signature", "parsed_output")}
            for block in message["content"]
        ], {name: message[name] for name in ("stop_reason", "stop_sequence", "model", "role", "usage")}

    assert said(found) == said(expected)
    assert {"message_start", "thinking", "signature", "text", "input_json", "message_stop"} <= set(kinds)


@pytest.mark.covers("API-01")
def test_every_raw_event_has_the_clients_type(api):
    from pydantic import TypeAdapter

    async def call(client):
        stream = await client.messages.create(model="acme/tiny", max_tokens=300, messages=HI, tools=TOOLS, stream=True)
        return [event async for event in stream]

    adapter = TypeAdapter(RawMessageStreamEvent)
    for event in talk(api, call):
        known(adapter.validate_python(event.model_dump()))


def test_a_conversation_with_its_own_answers_goes_on(api):
    async def call(client):
        first = await client.messages.create(model="acme/tiny", max_tokens=300, messages=HI, tools=TOOLS)
        use = first.content[-1]
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "Rain."}
        turns = [*HI, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        return await client.messages.create(model="acme/tiny", max_tokens=300, messages=turns, tools=TOOLS)

    assert talk(api, call).stop_reason == "tool_use"


def test_count_tokens(api):
    async def call(client):
        return await client.messages.count_tokens(model="acme/tiny", messages=HI, tools=TOOLS)

    assert known(talk(api, call)).input_tokens > 1


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"model": "gpt-9"}, anthropic.NotFoundError),
        ({"max_tokens": 0}, anthropic.BadRequestError),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, anthropic.BadRequestError),
    ],
)
def test_errors_are_the_clients_own(api, change, error):
    async def call(client):
        return await client.messages.create(**{"model": "acme/tiny", "max_tokens": 5, "messages": HI, **change})

    with pytest.raises(error):
        talk(api, call)


def test_an_overloaded_server_is_told_apart(build, fake):
    async def call(client):
        return await client.messages.create(model="acme/tiny", max_tokens=5, messages=HI)

    with pytest.raises(anthropic.OverloadedError):
        talk(build(fake(healthy=False)), call)
