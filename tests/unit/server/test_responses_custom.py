"""Custom tools, whose input is a text, and references to items of earlier responses."""

from __future__ import annotations

import json

import pytest
from core_plugin_openai.responses.conversation import to_messages
from core_plugin_openai.responses.custom import CustomCallItem
from core_plugin_openai.responses.items import parse_input
from core_plugin_openai.responses.tools import choose_tools
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent

from core.api import RequestError

RUN = {"type": "custom", "name": "run", "description": "Runs code."}
PATH = "/v1/responses"


def spoken(pieces, status="completed"):
    """Return what was passed on, piece by piece, and the item."""
    call = CustomCallItem(3, "run", "call_1", "ctc_1")
    events = [*call.opened(), *(event for piece in pieces for event in call.grown(piece)), *call.ended(status)]
    deltas = [event["delta"] for event in events if event["type"].endswith(".delta")]
    assert events[-2]["input"] == "".join(deltas) == events[-1]["item"]["input"]
    assert {event["output_index"] for event in events} == {3}
    return deltas, events[-1]["item"]


@given(st.text(), st.integers(1, 5), st.booleans())
def test_any_text_in_any_pieces(text, size, ascii_only):
    raw = json.dumps({"input": text}, ensure_ascii=ascii_only)
    _, item = spoken(raw[at : at + size] for at in range(0, len(raw), size))
    assert item["input"] == text


def test_it_is_passed_on_as_it_comes():
    deltas, _ = spoken(['{"inp', 'ut": "a', "b\\", "nc\\ud83d", '\\ude00d"', "}"])
    assert deltas == ["a", "b", "\nc", "😀d"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ('{"code": "x"}', '{"code": "x"}'),
        ('{"a": 1, "input": "x"}', "x"),
        ("print(1)", "print(1)"),
        ('{"input": 5}', '{"input": 5}'),
        ('{"input": "a\\ud800b"}', "a?b"),
        ('{"input": "a\nb"}', "a\nb"),
        ('{"input": "\\u12"}', '{"input": "\\u12"}'),
        ('{"input": "cut of', "cut of"),
        ('{"input": "cut\\', "cut"),
        ("", ""),
    ],
)
def test_what_models_write_instead(raw, text):
    assert spoken([raw])[1]["input"] == text


@given(st.text(alphabet='{}"input:\\ud83dab \n'), st.integers(1, 9))
def test_nothing_that_models_write_is_an_error(tail, size):
    raw = '{"input": "' + tail
    spoken((raw[at : at + size] for at in range(0, len(raw), size)), "incomplete")
    assert spoken(['{"input": "'], "incomplete")[1]["input"] == ""


def test_an_answer_with_a_custom_call(fake, build, parser, strict):
    llm = fake('<run:{"input":"print(1)"}>')
    api = build(llm, parser=parser)
    whole = api.post(PATH, {"input": "Hi", "tools": [RUN]}).json()
    strict(Response, whole)
    (item,) = whole["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "run", "print(1)")
    assert whole["tools"] == [{**RUN, "format": {"type": "text"}}]
    (offered,) = llm.rendered[0]["tools"]
    assert list(offered["function"]["parameters"]["properties"]) == ["input"]
    lines = api.post(PATH, {"input": "Hi", "tools": [RUN], "stream": True}).text.split("\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    for event in events:
        strict(ResponseStreamEvent, event)
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[2] == "output_item.added"
    assert kinds[-4:] == [
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ]
    assert events[-1]["response"]["output"][0]["input"] == "print(1)"


def test_what_it_gave_goes_back():
    call = {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": 'say "x"'}
    result = {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "1"}]}
    asked, gave = to_messages(None, parse_input([call, result]))
    assert json.loads(asked["tool_calls"][0]["function"]["arguments"]) == {"input": 'say "x"'}
    assert (gave["role"], gave["tool_call_id"], gave["content"], gave["name"]) == ("tool", "c", "1", "run")


def test_choices_of_custom_tools():
    chosen = choose_tools([RUN], {"type": "custom", "name": "run"})
    assert (chosen.choice.mode, chosen.choice.name) == ("function", "run")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"name": ""}, "name"),
        ({"description": 5}, "description"),
        ({"format": 5}, "format"),
        ({"format": {"type": "grammar", "syntax": "regex", "definition": "a"}}, "format"),
    ],
)
def test_faults_are_named(fields, param):
    with pytest.raises(RequestError) as refused:
        choose_tools([{**RUN, **fields}], None)
    assert refused.value.param == f"tools[0].{param}"


def test_references_to_items(llm, build):
    api = build(llm, response_store=5)
    first = api.post(PATH, {"input": [{"id": "mine", "role": "user", "content": "Hi"}]}).json()
    name = first["output"][0]["id"]
    for reference in ({"type": "item_reference", "id": name}, {"id": name}):
        again = api.post(PATH, {"input": [reference, {"role": "user", "content": "And?"}]})
        assert again.status_code == 200
        said = [(message["role"], message["content"]) for message in llm.rendered[-1]["messages"]]
        assert said == [("assistant", "Hello"), ("user", "And?")]
    for unknown in ("msg_unknown", "mine"):
        error = api.post(PATH, {"input": [{"type": "item_reference", "id": unknown}]}).json()["error"]
        assert (error["code"], error["param"]) == ("item_not_found", "input[0].id")
