"""Anthropic's own client against a real server whose model says what the user's last message says."""

from __future__ import annotations

import anthropic
import pytest

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
SCRIPT = f"<think>\nLook it up.\n</think>\n\nOne moment.\n{CALL}\n{CALL}"
TOOLS = [{"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
PARSERS = ("--tool-parser", "hermes", "--reasoning-parser", "qwen3")


@pytest.fixture(scope="module")
def client(launch, scripted):
    checkpoint, plugin = scripted
    flags = ("--threads", "1", "--dtype", "float32", "--served-model-name", "scripted", *PARSERS)
    server = launch(checkpoint, *flags, PYTHONPATH=plugin).wait_ready()
    with anthropic.Anthropic(
        base_url=server.url, api_key="none", max_retries=0, timeout=60, _strict_response_validation=True
    ) as client:
        yield client


def say(script, **fields):
    messages = [{"role": "user", "content": script}]
    extra = {"temperature": 0.0}  # which newer clients have no argument for
    return {"model": "scripted", "max_tokens": 400, "messages": messages, "extra_body": extra, **fields}


def said(message):
    """What a message says, without the ids that differ from one to the next."""
    blocks = [block.model_dump(exclude={"id", "signature", "parsed_output", "__json_buf"}) for block in message.content]
    return blocks, message.stop_reason, message.stop_sequence


@pytest.mark.covers("API-01", "TOOL-01", "REASON-01")
def test_thinking_text_and_parallel_calls(client):
    message = client.messages.create(**say(SCRIPT, tools=TOOLS))
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    thinking, text, one, other = message.content
    assert thinking.thinking.strip() == "Look it up." and text.text.strip() == "One moment."
    assert one.input == other.input == {"city": "Oslo"} and one.id != other.id
    assert message.stop_reason == "tool_use"


@pytest.mark.covers("API-01")
@pytest.mark.parametrize("script", [SCRIPT, "Plain words.", CALL, "<think>\nOnly thinking.\n</think>"])
def test_a_stream_says_what_the_whole_message_says(client, script):
    whole = client.messages.create(**say(script, tools=TOOLS))
    with client.messages.stream(**say(script, tools=TOOLS)) as stream:
        streamed = stream.get_final_message()
    assert said(streamed) == said(whole)
    assert streamed.usage.output_tokens == whole.usage.output_tokens


def test_a_call_that_nobody_offered_is_text(client):
    message = client.messages.create(**say(CALL))
    assert [block.type for block in message.content] == ["text"]
    assert message.stop_reason == "end_turn"


def test_stop_sequences_limits_and_the_prefix_cache(client):
    stopped = client.messages.create(**say("one two three", stop_sequences=[" two"]))
    assert (stopped.stop_reason, stopped.stop_sequence, stopped.content[0].text) == ("stop_sequence", " two", "one")
    assert client.messages.create(**say("one two three", max_tokens=2)).stop_reason == "max_tokens"
    long = say("A long prompt is cached. " * 20, max_tokens=1)
    first, second = (client.messages.create(**long).usage for _ in range(2))
    assert first.cache_read_input_tokens == 0 and second.cache_read_input_tokens > 0
    assert second.input_tokens + second.cache_read_input_tokens == first.input_tokens


def test_a_tool_loop(client):
    asked = say(CALL, tools=TOOLS)
    first = client.messages.create(**asked)
    result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": "Rain."}
    turns = [*asked["messages"], {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(**{**asked, "messages": [*turns, {"role": "user", "content": "It rains."}]})
    assert second.content[0].text == "It rains."


def test_counting_agrees_with_usage(client):
    asked = say("How many?", system="Count.", tools=TOOLS)
    counted = client.messages.count_tokens(**{name: asked[name] for name in ("model", "messages", "system", "tools")})
    usage = client.messages.create(**asked).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


@pytest.mark.covers("REASON-01")
def test_a_thinking_budget_is_kept(client):
    script = f"<think>\n{'Hm, ' * 30}</think>\n\nWell."
    free = client.messages.create(**say(script))
    thinking = {"type": "enabled", "budget_tokens": 1024}  # the least that the client's own rules allow
    assert said(client.messages.create(**say(script, thinking=thinking))) == said(free)
    bounded = client.messages.create(**say(script, thinking={**thinking, "budget_tokens": 20}))
    assert 0 < len(bounded.content[0].thinking) <= 20 < len(free.content[0].thinking)
    assert bounded.content[1].type == "text"


@pytest.mark.covers("API-01")
def test_the_model_is_listed_as_the_client_expects(client):
    (model,) = client.models.list().data
    assert client.models.retrieve(model.id) == model
    assert (model.id, model.type, model.lifecycle) == ("scripted", "model", "active")
    with pytest.raises(anthropic.NotFoundError, match="not_found_error"):
        client.models.retrieve("other")
