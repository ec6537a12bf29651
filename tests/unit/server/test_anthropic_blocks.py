"""Content blocks: events in order, and the message that they add up to."""

from __future__ import annotations

import json

from core_plugin_anthropic.blocks import BlockWriter, MessageFold
from hypothesis import given
from hypothesis import strategies as st

from core.api.parsers import Reasoning, Text, ToolArguments, ToolEnd, ToolStart

START = {"type": "message_start", "message": {"content": [], "usage": {}}}


def folded(events):
    fold = MessageFold()
    for event in [START, *events]:
        fold.add(event)
    return fold.message()["content"]


def written(events, **options):
    writer = BlockWriter(**options)
    return [*(found for event in events for found in writer.write([event])), *writer.close()]


CALL = [ToolStart(0, "f"), ToolArguments(0, '{"a": '), ToolArguments(0, "1}"), ToolEnd(0)]


def test_thinking_text_and_calls_are_blocks_of_their_own():
    events = written([Reasoning("Hm"), Reasoning("."), Text("\n\n"), Text("Yes"), *CALL, *CALL])
    content = folded(events)
    assert [block["type"] for block in content] == ["thinking", "text", "tool_use", "tool_use"]
    assert content[0]["thinking"] == "Hm." and content[0]["signature"]
    assert content[1]["text"] == "\n\nYes"
    assert content[2]["input"] == content[3]["input"] == {"a": 1}
    assert content[2]["id"] != content[3]["id"]


def test_blank_text_between_blocks_is_no_block():
    assert [block["type"] for block in folded(written([Reasoning("Hm."), Text("\n"), *CALL, Text("\n")]))] == [
        "thinking",
        "tool_use",
    ]
    assert written([Text(" \n")]) == []


def test_thinking_can_be_kept_back():
    content = folded(written([Reasoning("Hm."), Text("Yes")], show_thinking=False))
    assert content[0]["thinking"] == "" and content[0]["signature"]
    assert content[1]["text"] == "Yes"


words = st.text(alphabet="ab \n", min_size=1, max_size=4)
pieces = st.lists(
    st.one_of(
        words.map(lambda word: [Text(word)]),
        words.map(lambda word: [Reasoning(word)]),
        st.just(CALL),
    ),
    max_size=12,
).map(lambda groups: [event for group in groups for event in group])


@given(pieces)
def test_blocks_open_and_close_in_order_and_lose_nothing(events):
    found = written(events)
    opened = None
    for event in found:
        if event["type"] == "content_block_start":
            assert opened is None
        else:
            assert event["index"] == opened
        opened = None if event["type"] == "content_block_stop" else event["index"]
    assert opened is None
    content = folded(found)
    assert [block["type"] for block in content] == [
        event["content_block"]["type"] for event in found if event["type"] == "content_block_start"
    ]
    said = "".join(event.text for event in events if isinstance(event, Text))
    kept = "".join(block["text"] for block in content if block["type"] == "text")
    assert "".join(kept.split()) == "".join(said.split())
    thought = "".join(event.text for event in events if isinstance(event, Reasoning))
    assert "".join(block["thinking"] for block in content if block["type"] == "thinking") == thought
    json.dumps(content)
