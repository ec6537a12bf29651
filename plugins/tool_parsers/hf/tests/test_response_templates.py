"""The parser of response templates beside transformers' own, over the same texts."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import regex
from core_plugin_parsers_hf.conformance import CHANNEL_TEMPLATE, JSON_TEMPLATE, TAGS_TEMPLATE, TEMPLATES, samples
from core_plugin_parsers_hf.forced import DescribedParser
from core_plugin_parsers_hf.parser import TemplateParser
from hypothesis import given, settings
from hypothesis import strategies as st

from core.api import CheckpointError, ParserContext, Reasoning, Text, ThinkingTags, ToolArguments, ToolStart
from core.api.parsers import ParseEvent
from core_testing.conformance.tools.messages import joined, require_well_formed

SAMPLES = list(samples())


def parse(pieces: list[str], **context: Any) -> list[ParseEvent]:
    parser = TemplateParser(ParserContext(**context))
    events = [event for piece in pieces for event in parser.feed(piece)]
    return joined([*events, *parser.finish()])


def message_of(events: list[ParseEvent]) -> dict[str, Any]:
    calls: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, ToolStart):
            calls[event.index] = [event.name, ""]
        elif isinstance(event, ToolArguments):
            calls[event.index][1] += event.json
    return {
        "content": "".join(event.text for event in events if isinstance(event, Text)),
        "reasoning": "".join(event.text for event in events if isinstance(event, Reasoning)),
        "calls": [(name, json.loads(arguments)) for name, arguments in calls.values()],
    }


def reference(text: str, template: Any, prefix: str = "", tools: Any = None) -> dict[str, Any]:
    chat_parsing = pytest.importorskip("transformers.utils.chat_parsing")
    found = chat_parsing.parse_response(text, template, prefix=prefix, tools=list(tools or ()))
    calls = [one["function"] for one in found.get("tool_calls", ())]
    return {
        "content": found.get("content", ""),
        "reasoning": found.get("thinking", found.get("reasoning_content", "")),
        "calls": [(one["name"], one["arguments"]) for one in calls],
    }


@pytest.mark.covers("TOOL-01", "REASON-01")
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_messages_give_what_transformers_makes_of_them(sample: Any) -> None:
    found = parse(
        [sample.text], tools=sample.tools, response_template=sample.response_template, in_reasoning=sample.in_reasoning
    )
    assert found == list(sample.events)
    if sample.name in ("no call", "a call that breaks off", "without a template"):
        return  # transformers raises, or needs a template
    prefix = "<|im_start|>assistant\n<think>" if sample.in_reasoning else ""
    assert message_of(found) == reference(sample.text, sample.response_template, prefix, sample.tools)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_cut_gives_the_same_events(data: st.DataObject) -> None:
    template = data.draw(st.sampled_from(TEMPLATES))
    texts = [sample.text for sample in SAMPLES]
    parts = data.draw(st.lists(st.sampled_from(texts), min_size=1, max_size=3))
    text = "".join(part[data.draw(st.integers(0, 3)) : len(part) - data.draw(st.integers(0, 9))] for part in parts)
    whole = parse([text], response_template=template)
    rng = random.Random(data.draw(st.integers(0, 999)))
    cuts = sorted(rng.sample(range(len(text) + 1), min(len(text), 12)))
    assert parse([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])], response_template=template) == whole
    require_well_formed(whole, text)


class CharTokenizer:
    """A token a character."""

    def decode(self, ids: Any, *, skip_special_tokens: bool = True) -> str:
        return "".join(map(chr, ids))


@pytest.mark.covers("REASON-01")
@pytest.mark.parametrize(
    ("prompt", "text", "expected"),
    [
        ("<|im_start|>user\n<think>x</think><|im_end|><|im_start|>assistant\n", "Yes.", [Text("Yes.")]),
        ("<|im_start|>assistant\n<think>\n", "Hm.</think>\nYes.", [Reasoning("Hm."), Text("Yes.")]),
        ("<|im_start|>assistant\n<think>\nHm.\n</think>\n", "Yes.", [Text("Yes.")]),
        ("no beginning <think>", "Yes.", [Text("Yes.")]),
    ],
)
def test_the_prompt_may_hold_the_beginning_of_the_message(prompt: str, text: str, expected: list[ParseEvent]) -> None:
    tokenizer: Any = CharTokenizer()
    ids = list(map(ord, "x" * 500 + prompt))
    assert parse(list(text), response_template=JSON_TEMPLATE, tokenizer=tokenizer, prompt_ids=ids) == expected


@pytest.mark.parametrize("reads", [frozenset(), frozenset({"tools"}), frozenset({"reasoning"})])
def test_what_is_not_asked_for_is_text(reads: frozenset[str]) -> None:
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    found = parse([f"<think>Hm.</think>{call}"], response_template=JSON_TEMPLATE, reads=reads)
    shown = "".join(event.text for event in found if isinstance(event, Text))
    assert ("<think>Hm.</think>" in shown) == ("reasoning" not in reads)
    assert (call in shown) == ("tools" not in reads)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version 2"),
        ({"fields": {}}, "no fields"),
        ({"start_anchor": None}, "start_anchor"),
        ({"other": 1}, "unknown keys other"),
        ({"fields": {"content": {"open_pattern": "("}}}, "missing"),
        ({"fields": {"content": {}, "thinking": {}}}, "only one"),
        ({"fields": {"content": {"content": "yaml"}}}, "yaml"),
        ({"fields": {"content": {"transform": "a {content}"}}}, "in part"),
    ],
)
def test_a_template_that_is_none_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckpointError, match=said) as caught:
        TemplateParser(ParserContext(response_template={**JSON_TEMPLATE, **change}))
    assert caught.value.code == "CORE-M145"


@pytest.mark.parametrize("template", TEMPLATES[:3])
@pytest.mark.parametrize(
    "piece", ["<", "<think>", "<tool_call>", "<|channel|>commentary to=functions.f ", '{"a": [', "x y\n"]
)
def test_work_is_linear(template: Any, piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in characters that patterns are let loose on."""
    seen, compiled = 0, regex.compile

    class Counting:
        def __init__(self, source: str, flags: int = 0) -> None:
            self._pattern = compiled(source, flags)

        def __getattr__(self, name: str) -> Any:
            found = getattr(self._pattern, name)
            return self._counted(found) if name in ("search", "match") else found

        def _counted(self, method: Any) -> Any:
            def call(data: str, start: int, end: int, **options: Any) -> Any:
                nonlocal seen
                seen += end - start
                return method(data, start, end, **options)

            return call

    monkeypatch.setattr(regex, "compile", Counting)

    def searched(times: int) -> int:
        nonlocal seen
        seen, text = 0, piece * times
        parse([text[at : at + 24] for at in range(0, len(text), 24)], response_template=template)
        parse([text], response_template=template)
        return seen

    assert 0 < searched(2000) < 5 * searched(500) + 10_000


def test_a_pattern_that_never_ends_is_given_up() -> None:
    fields = {"content": {}, "thinking": {"open_pattern": r"(?:(?:a|aa)+)+!", "close": "z"}}
    template = {"start_anchor": "s", "fields": fields}
    text = "a" * 60 + "b"
    assert parse([text], response_template=template) == [Text(text)]


def test_templates_of_every_kind_are_read() -> None:
    lines = {
        "open": "<call>",
        "close": "</call>",
        "content": "kv-lines",
        "transform": {"name": "{content.tool}", "arguments": {"city": "{content.city}"}},
    }
    template = {"start_anchor": "s", "fields": {"content": {"content_args": {"strip": False}}, "tool_calls": lines}}
    found = parse(["a <call>tool: f\ncity: Paris\n</call> b"], response_template=template)
    assert message_of(found) == {"content": "a  b", "reasoning": "", "calls": [("f", {"city": "Paris"})]}
    each = {
        "open": "[CALLS]",
        "content": "json",
        "transform": {"name": "{fn}", "arguments": "{args}"},
        "transform_each": True,
    }
    text = '[CALLS][{"fn": "f", "args": {"a": 1}}, {"fn": "g", "args": {}}]'
    found = parse(list(text), response_template={"start_anchor": "s", "fields": {"tool_calls": each}})
    assert message_of(found)["calls"] == [("f", {"a": 1}), ("g", {})]


TOOLS = [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}]


@pytest.mark.covers("TOOL-01")
def test_forced_calls_have_the_form_of_the_template_or_are_a_list() -> None:
    """The grammars themselves are tested with the engine's families."""
    own = ParserContext(TOOLS, response_template=JSON_TEMPLATE)
    grammar = DescribedParser.forced(own, TOOLS, many=False)
    begin, _, end = json.loads(grammar.value)["format"]["elements"]
    assert begin["value"] == '<tool_call>\n{"name": "f", "arguments": ' and end["value"] == "}\n</tool_call>"
    text = f"{begin['value']}{{}}{end['value']}"
    assert message_of(finished(grammar.make(own), text))["calls"] == [("f", {})]
    assert grammar.thinking == ThinkingTags("</think>", "<think>")
    strict = DescribedParser.strict(own, TOOLS, many=True)
    assert strict is not None and json.loads(strict.value)["format"]["triggers"] == ["<tool_call>"]
    other = ParserContext(TOOLS, response_template=TAGS_TEMPLATE)
    listed = DescribedParser.forced(other, TOOLS, many=True)
    found = message_of(finished(listed.make(other), '<think>Hm.</think>[{"name": "f", "parameters": {"a": 1}}]'))
    assert found == {"content": "", "reasoning": "Hm.", "calls": [("f", {"a": 1})]}
    assert DescribedParser.strict(other, TOOLS, many=True) is None
    assert DescribedParser.thinking(
        ParserContext(response_template=CHANNEL_TEMPLATE, in_reasoning=True)
    ) == ThinkingTags("<|end|>", "<|channel|>analysis<|message|>", open=True)
    assert DescribedParser.thinking(ParserContext()) is None


def finished(parser: Any, text: str) -> list[ParseEvent]:
    events = [event for letter in text for event in parser.feed(letter)]
    return joined([*events, *parser.finish()])
