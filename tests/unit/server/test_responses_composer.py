"""The events of one answer: their order, their types, and that whole and streamed answers are the same."""

import random

import pytest
from core_plugin_openai.responses.composer import Composer
from openai.types.responses import ResponseStreamEvent

from core.api.parsers import Reasoning, Text, ToolArguments, ToolEnd, ToolStart

CALL = [ToolStart(0, "add"), ToolArguments(0, '{"a"'), ToolArguments(0, ":1}"), ToolEnd(0)]
SECOND = [ToolStart(1, "mul"), ToolArguments(1, "{}"), ToolEnd(1)]


@pytest.fixture
def compose(strict):
    """Feed pieces one by one; check every event against the client's types."""

    def compose(pieces, status="completed", composer=None, **options):
        composer = composer or Composer(**options)
        events = [event for piece in pieces for event in composer.add([piece], [1])]
        events += composer.finish(status)
        for number, event in enumerate(events):
            strict(ResponseStreamEvent, {**event, "sequence_number": number})
        return events

    return compose


def kinds(events):
    return [event["type"].removeprefix("response.") for event in events]


def items(events):
    return [event["item"] for event in events if event["type"] == "response.output_item.done"]


def joined(events, kind):
    return "".join(event["delta"] for event in events if event["type"] == f"response.{kind}.delta")


def test_text(compose):
    events = compose([Text("Hel"), Text("lo")])
    assert kinds(events) == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
    ]
    (item,) = items(events)
    assert joined(events, "output_text") == "Hello" == item["content"][0]["text"] == events[4]["text"]
    assert {event.get("item_id", item["id"]) for event in events} == {item["id"]}


def test_thinking_text_and_calls_are_items_in_their_order(compose):
    events = compose([Reasoning("h"), Reasoning("m"), Text("ok"), *CALL, *SECOND])
    assert kinds(events) == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    thought, text, first, second = items(events)
    assert thought["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert text["content"][0]["text"] == "ok"
    assert (first["name"], first["arguments"], second["name"]) == ("add", '{"a":1}', "mul")
    assert [event["output_index"] for event in events if "item" in event] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len({item["id"] for item in items(events)}) == 4


def test_blank_text_is_no_item_of_its_own(compose):
    events = compose([Reasoning("\n"), Reasoning("hm"), Text("\n\n"), *CALL, Text("\n"), *SECOND, Text(" ")])
    assert [item["type"] for item in items(events)] == ["reasoning", "function_call", "function_call"]
    assert items(events)[0]["content"][0]["text"] == "\nhm"
    assert items(compose([Reasoning("\n\n"), Text("\n\n"), Text("Hi")]))[0]["content"][0]["text"] == "\n\nHi"


def test_there_is_always_an_item(compose):
    assert items(compose([]))[0]["content"][0]["text"] == ""
    assert items(compose([Text("\n")]))[0]["content"][0]["text"] == "\n"


def test_an_answer_that_was_cut_off(compose):
    events = compose([Text("a"), *CALL[:2]], "incomplete")
    text, call = items(events)
    assert (text["status"], call["status"], call["arguments"]) == ("completed", "incomplete", '{"a"')
    assert items(compose([Text("a")], "incomplete"))[0]["status"] == "incomplete"


def test_calls_may_overlap(compose):
    starts = [ToolStart(0, "add"), ToolStart(1, "mul"), ToolArguments(1, "{}"), ToolArguments(0, "{}")]
    first, second = items(compose([*starts, ToolEnd(1), ToolEnd(0)]))
    assert (first["name"], second["name"]) == ("mul", "add")


def test_no_more_calls_than_allowed(compose):
    composer = Composer(max_calls=1)
    events = compose([*CALL, *SECOND, Text("more")], composer=composer)
    assert composer.full
    assert [item["name"] for item in items(events)] == ["add"]
    assert not Composer(max_calls=2).full


def test_ids_of_calls(compose):
    events = compose([*CALL, *SECOND], call_id=lambda name, number: f"functions.{name}:{number + 7}")
    assert [item["call_id"] for item in items(events)] == ["functions.add:7", "functions.mul:8"]
    default = items(compose([*CALL, *SECOND]))
    assert default[0]["call_id"].startswith("call_")
    assert default[0]["call_id"] != default[1]["call_id"]


def test_thinking_is_counted():
    composer = Composer()
    for pieces in ([Reasoning("a")], [Reasoning("b")], [], [Text("c")], []):
        composer.add(pieces, [1])
    assert composer.reasoning_tokens == 3


def score(name):
    return {"token": name, "logprob": -0.5, "bytes": [65], "top_logprobs": []}


def test_scores_go_with_the_text_they_belong_to():
    composer = Composer()
    steps = [
        ([Reasoning("hm")], "hm"),
        ([], "</think>"),
        ([Text("A")], "A"),
        ([], "held"),
        ([Text("held!")], "!"),
        ([], "<eos>"),
    ]
    events = [event for said, name in steps for event in composer.add(said, [1], [score(name)])] + composer.finish()
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [[entry["token"] for entry in event["logprobs"]] for event in deltas] == [["A"], ["held", "!"], ["<eos>"]]
    whole = items(events)[-1]["content"][0]
    assert [entry["token"] for entry in whole["logprobs"]] == ["A", "held", "!", "<eos>"]


def test_scores_wait_for_text_that_is_held_back():
    composer = Composer()
    events = composer.add([], [1], [score("a")]) + composer.add([Text("ab")], [2], [score("b")])
    assert [entry["token"] for entry in events[-1]["logprobs"]] == ["a", "b"]


def test_every_token_id_is_in_an_event():
    composer = Composer(show_ids=True)
    said = [[], [Text("a")], [], [Reasoning("b")], [], [*CALL], []]
    events = [event for number, pieces in enumerate(said) for event in composer.add(pieces, [number])]
    events += composer.finish()
    sent = [number for event in events for number in event.get("token_ids", [])]
    assert [*sent, *composer.rest()] == list(range(len(said)))
    assert sent[-1] == len(said) - 2  # what stands behind the last call is in no item
    plain = Composer()
    assert not any("token_ids" in event for event in plain.add([Text("a")], [1]) + plain.finish())


def split(pieces, chance):
    """Cut texts anywhere, and put pieces together anyhow."""
    small = []
    for piece in pieces:
        if isinstance(piece, Text | Reasoning):
            small += [type(piece)(char) for char in piece.text]
        elif isinstance(piece, ToolArguments):
            small += [ToolArguments(piece.index, char) for char in piece.json]
        else:
            small.append(piece)
    batches = [[]]
    for piece in small:
        if chance.random() < 0.4:
            batches.append([])
        batches[-1].append(piece)
    return batches


def without_ids(item):
    return {name: value for name, value in item.items() if name not in ("id", "call_id")}


@pytest.mark.parametrize("seed", range(20))
def test_however_it_arrives_the_answer_is_the_same(compose, seed):
    pieces = [Reasoning(" hm \n"), Text("\n\nSo: "), *CALL, Text("\n"), *SECOND, Text(" done ")]
    whole = items(compose(pieces))
    chance = random.Random(seed)
    composer = Composer()
    events = [event for batch in split(pieces, chance) for event in composer.add(batch)] + composer.finish()
    assert [without_ids(item) for item in items(events)] == [without_ids(item) for item in whole]
    for item in items(events):
        mine = [event for event in events if event.get("item_id") == item["id"] and "delta" in event]
        text = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        assert "".join(event["delta"] for event in mine) == text
