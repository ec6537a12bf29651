"""Chat templates, with transformers as the reference."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from core.api.errors import RequestError
from core_testing.templates import CompiledTemplate

os.environ.setdefault("USE_TORCH", "0")  # the reference needs none, and importing it is slow

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

# Written for these tests, in the manner of the families that they are named after.
TEMPLATES = {
    name: Path(__file__).with_name("templates").joinpath(f"{name}.jinja").read_text(encoding="utf-8")
    for name in ("chatml", "llama3", "mistral", "qwen3")
}
CHATML, MISTRAL = TEMPLATES["chatml"], TEMPLATES["mistral"]

USER = {"role": "user", "content": "What's <b>up</b> & “über” 你好? "}
TALK = [USER, {"role": "assistant", "content": " Fine. "}, {"role": "user", "content": "Good"}]
SYSTEM = [{"role": "system", "content": "Be brief."}, *TALK]
CALL = {
    "id": "1",
    "type": "function",
    "function": {"name": "get", "arguments": {"city": "Zürich", "n": [1, None, True]}},
}
TOOLS = [
    {"type": "function", "function": {"name": "get", "description": "<Get> & é", "parameters": {"type": "object"}}}
]
TOOL_TALK = [
    USER,
    {"role": "assistant", "content": "", "reasoning_content": "hm\n", "tool_calls": [CALL]},
    {"role": "tool", "content": '{"t": 3}'},
]


@pytest.fixture(scope="module")
def reference():
    from transformers.utils.chat_template_utils import render_jinja_template

    def render(template, messages, **kwargs):
        rendered, _ = render_jinja_template([messages], chat_template=template, **SPECIAL, **kwargs)
        return rendered[0]

    return render


CASES = [
    ("chatml", TALK, {}),
    ("chatml", SYSTEM, {"add_generation_prompt": False}),
    ("llama3", SYSTEM, {}),
    ("llama3", TOOL_TALK, {"tools": TOOLS}),
    ("llama3", SYSTEM, {"functions_first": False, "tools": TOOLS, "add_generation_prompt": False}),
    ("mistral", TALK, {}),
    ("mistral", [*TALK, {"role": "tool", "content": "x"}, USER], {}),
    ("qwen3", SYSTEM, {}),
    ("qwen3", SYSTEM, {"tools": TOOLS, "enable_thinking": False}),
    ("qwen3", TOOL_TALK, {"tools": TOOLS}),
    ("qwen3", TOOL_TALK, {"documents": [{"title": "a", "text": "b"}]}),
]


@pytest.mark.covers("REND-07")
@pytest.mark.parametrize(("name", "messages", "kwargs"), CASES, ids=[f"{case[0]}-{i}" for i, case in enumerate(CASES)])
def test_equals_transformers(reference, name, messages, kwargs):
    kwargs = {"add_generation_prompt": True, **kwargs}
    expected = reference(TEMPLATES[name], messages, **kwargs)
    assert CompiledTemplate(TEMPLATES[name], SPECIAL).render(messages, **kwargs) == expected
    assert len(expected) > 40


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("tail", ["Once upon", "Once upon ", "a\n\n"])
def test_continuing_equals_transformers(reference, name, tail):
    messages = [USER, {"role": "assistant", "content": tail}]
    expected = reference(TEMPLATES[name], messages, continue_final_message=True)
    template = CompiledTemplate(TEMPLATES[name], SPECIAL)
    given = template.render(messages, add_generation_prompt=False, continue_final_message=True)
    assert given == expected and given.endswith(("Once upon", "Once upon ", "a", "a\n\n"))


@pytest.mark.covers("REASON-02")
@pytest.mark.parametrize("key", ["reasoning", "reasoning_content", "thinking"])
def test_reasoning_is_found_under_every_name(key):
    template = CompiledTemplate("{{ messages[0].reasoning }}|{{ messages[0].reasoning_content }}", {})
    assert template.render([{"role": "assistant", "content": "x", key: "why"}]) == "why|why"


def test_text_parts_are_joined():
    template = CompiledTemplate("{{ messages[0].content }}", {})
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, "c"]
    assert template.render([{"role": "user", "content": parts}]) == "a\nb\nc"


def test_a_template_that_takes_texts_and_parts_gets_a_text_as_it_is():
    """Gemma 4's writes a system message as a text, wherever it goes through the parts of others."""
    source = (
        "{{ messages[0].content | trim }}|{% for message in messages[1:] %}{% if message.content is string %}"
        "{{ message.content }}{% else %}{% for part in message.content %}<{{ part.text }}>{% endfor %}{% endif %}"
        "{% endfor %}"
    )
    template = CompiledTemplate(source, {})
    assert template.template.content_format == "openai"

    def render(content):
        return template.render([{"role": "system", "content": "Be kind."}, {"role": "user", "content": content}])

    assert render("a") == render([{"type": "text", "text": "a"}]) == "Be kind.|a"
    assert render(["a", "b"]) == "Be kind.|<a><b>" and render("") == render(None) == "Be kind.|"
    asked = CompiledTemplate(source, {}, content_format="openai")
    assert asked.render([{"role": "system", "content": "x"}]).startswith("[{")


def test_the_callers_messages_are_left_alone():
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning": "r"}]
    before = json.dumps(messages)
    CompiledTemplate(CHATML, {}).render(messages, add_generation_prompt=False, continue_final_message=True)
    assert json.dumps(messages) == before


@pytest.mark.covers("API-04")
@pytest.mark.parametrize(
    "messages",
    [
        [],
        "hello",
        None,
        {"role": "user"},
        ["hello"],
        [{"content": "a"}],
        [{"role": 3, "content": "a"}],
        [{"role": "user", "content": 3}],
        [{"role": "user", "content": {"text": "a"}}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
        [{"role": "user", "content": [{"type": "text", "text": 3}]}],
        [{"role": "user", "content": [7]}],
        [{"role": "assistant", "tool_calls": ["f"]}],
        [{"role": "user", "content": "a", "extra": object()}],
    ],
    ids=lambda value: re.sub(" at 0x.*", "", str(value)),
)
def test_malformed_messages_are_refused(messages):
    with pytest.raises(RequestError) as caught:
        CompiledTemplate(CHATML, {}).render(messages)
    assert (caught.value.param, caught.value.status) == ("messages", 400)


def test_deep_nesting_is_refused():
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(RequestError, match="levels deep"):
        CompiledTemplate(CHATML, {}).render([USER], tools=deep)


def test_a_templates_own_refusal_is_the_message():
    with pytest.raises(RequestError) as caught:
        CompiledTemplate(MISTRAL, SPECIAL).render([USER, USER])
    assert str(caught.value) == "user and assistant must take turns"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__ }}{{ raise_exception.__globals__['json'] }}",
        "{{ 'a' * 10000000000 }}",
        "{{ 10000000000 * ['a'] }}",
        "{{ 10 ** 1000000000 }}",
        "{{ '%1000000000d' % 3 }}",
        "{% for i in range(10000000000) %}{% endfor %}",
        "{{ undefined_thing.x }}",
        "{{ 1 + 'a' }}",
        "{% include 'x' %}",
    ],
)
def test_hostile_and_broken_templates_fail_as_requests(source):
    with pytest.raises(RequestError, match="cannot render") as caught:
        CompiledTemplate(source, {}).render([USER])
    assert caught.value.param == "messages"


def test_output_is_bounded():
    source = "{% for i in range(9999) %}{{ messages[0].content }}{% endfor %}"
    template = CompiledTemplate(source, {}, max_chars=1000)
    with pytest.raises(RequestError) as caught:
        template.render([{"role": "user", "content": "x" * 100}])
    assert caught.value.code == "context_length_exceeded"


def test_bad_sources_and_bad_combinations():
    with pytest.raises(ValueError, match="Expected"):
        CompiledTemplate("{% for %}", {})
    template = CompiledTemplate(CHATML, {})
    with pytest.raises(RequestError, match="both"):
        template.render([USER], continue_final_message=True)
    quiet = CompiledTemplate("{{ messages[0].role }}", {})
    called = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    for messages, chosen in (([USER], quiet), ([called], template)):
        with pytest.raises(RequestError) as caught:
            chosen.render(messages, add_generation_prompt=False, continue_final_message=True)
        assert caught.value.param == "messages"
