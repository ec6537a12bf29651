"""Whatever a grammar of forced calls lets through, the family reads as the calls that were demanded."""

from __future__ import annotations

import json
import random
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import tokenizers
from core_plugin_parsers.written import GENERAL, Written, tag_text

from core.api import ParserContext, Text, ToolArguments, ToolParserSpec, ToolStart
from core.api.structured import StructuredContext
from core_tokenizers.fast import FastTokenizer

PACKAGES = ("hermes", "parsers_json", "parsers_xml", "parsers_python", "parsers_reasoning")
MARKS = ["<|channel|>", "<|message|>", "<|constrain|>", "[TOOL_CALLS]", "<|tool_call_begin|>", "</arg_value>"]
OBJECT = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris"]}, "days": {"const": 3}, "where": OBJECT, "more": {"type": "string"}},
    "required": ["city", "days", "where"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": SCHEMA}}]
WANTED = {"city": "Paris", "days": 3, "where": {"a": 1}}


def families() -> dict[str, Any]:
    found = {}
    for package in PACKAGES:
        for spec in vars(import_module(f"core_plugin_{package}.manifest")).values():
            if isinstance(spec, ToolParserSpec) and "tools" in spec.reads:
                module, _, attribute = spec.impl.partition(":")
                found[attribute] = getattr(import_module(module), attribute)
    return found


FAMILIES = families()


@pytest.fixture(scope="module")
def tokenizer() -> FastTokenizer:
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({char: index for index, char in enumerate(alphabet)}, []))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens(["<eos>", *MARKS])
    end = backend.token_to_id("<eos>")
    return FastTokenizer(backend, special={}, chat_template=None, eos_ids=[end])


@pytest.fixture(scope="module", params=["xgrammar:XGrammar", "llguidance:LLGuidance"])
def backend(request: pytest.FixtureRequest, tokenizer: FastTokenizer) -> Any:
    name, _, kind = request.param.partition(":")
    pytest.importorskip(name)
    driver = getattr(pytest.importorskip(f"core_plugin_{name}.backend"), kind)
    return driver(StructuredContext(vocab_size=tokenizer.vocab_size, tokenizer=lambda: tokenizer))


def written(grammar: Any, tokenizer: FastTokenizer, seed: int) -> str:
    """Return a sentence of a grammar, chosen at random but for white space."""
    rng, matcher, ids = random.Random(seed), grammar.matcher(), []
    while not (ids and matcher.is_complete()):
        mask = np.zeros(-(-tokenizer.vocab_size // 32), np.int32)
        matcher.fill(mask)
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: tokenizer.vocab_size]
        allowed = [token for token in np.flatnonzero(bits).tolist() if token not in tokenizer.eos_ids]
        dense = [token for token in allowed if tokenizer.token(token).strip()] or allowed
        ids.append(rng.choice(dense))
        assert matcher.accept(ids[-1]) and len(ids) < 2000
    return tokenizer.decode(ids, skip_special_tokens=False)


@pytest.mark.covers("TOOL-01")
@pytest.mark.parametrize("name", FAMILIES)
def test_a_forced_call_is_a_call(name: str, backend: Any, tokenizer: FastTokenizer) -> None:
    required = [{"type": "function", "function": {**TOOLS[0]["function"], "parameters": without_more()}}]
    grammar = FAMILIES[name].forced(ParserContext(), required, many=False)
    compiled = backend.compile(grammar.kind, grammar.value)
    begun = grammar.thinking is not None and grammar.thinking.open
    text = (grammar.thinking.end if begun else "") + written(compiled, tokenizer, 1)
    parser = grammar.make(ParserContext(tools=required))
    events = [*parser.feed(text), *parser.finish()]
    assert [event.name for event in events if isinstance(event, ToolStart)] == ["get_weather"], text
    assert json.loads("".join(event.json for event in events if isinstance(event, ToolArguments))) == WANTED
    assert not any(isinstance(event, Text) for event in events)


@pytest.mark.covers("REASON-01", "TOOL-01")
@pytest.mark.parametrize(
    ("package", "name"), [("xml", "QWEN3_CODER"), ("xml", "GLM45"), ("xml", "DEEPSEEK_V4"), ("json", "KIMI_K2")]
)
def test_a_call_in_the_thinking_is_not_the_one_that_is_demanded(package: str, name: str) -> None:
    """The grammar waits for the end of the thinking, and so does what reads it."""
    family, samples = FAMILIES[name], import_module(f"core_plugin_parsers_{package}.conformance").samples()
    call = next(sample for sample in samples if sample.plugin == name.lower() and sample.name == "one call")
    for make, count in ((family.forced(ParserContext(), TOOLS, many=False).make, 1), (family, 2)):
        parser = make(ParserContext())
        events = [*parser.feed(f"<think>Hm.{call.text}</think>{call.text}"), *parser.finish()]
        assert len([event for event in events if isinstance(event, ToolStart)]) == count


def without_more() -> dict[str, Any]:
    kept = {key: value for key, value in SCHEMA["properties"].items() if key != "more"}  # type: ignore[attr-defined]
    return {**SCHEMA, "properties": kept}


@pytest.mark.covers("TOOL-01")
@pytest.mark.parametrize("name", FAMILIES)
def test_strict_grammars_compile(name: str, backend: Any) -> None:
    grammar = FAMILIES[name].strict(ParserContext(), TOOLS, many=True)
    if grammar is not None:
        backend.compile(grammar.kind, grammar.value)


@pytest.mark.parametrize(
    ("form", "text", "fits"),
    [
        (GENERAL, '[{"name": "now", "parameters": {}}, {"name": "now", "parameters": {}}]', True),
        (GENERAL, '[{"name": "never", "parameters": {}}]', False),
        (Written("<{name}>", "</>", ("<{key}>", "</>")), "<f><a>any text</><b>3</></>", True),
        (Written("<{name}>", "</>", ("<{key}>", "</>")), "<f><a>any text</></>", True),
        (Written("<{name}>", "</>", ("<{key}>", "</>")), "<f><b>3</></>", False),
        (Written("<{name}>", "</>", ("<{key}>", "</>")), "<now></>", True),
        (Written("<{name}>", "</>", between=None), "<now>{}</><now>{}</>", False),
    ],
)
def test_what_grammars_of_calls_let_through(
    backend: Any, tokenizer: FastTokenizer, form: Written, text: str, fits: bool
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]}
    nothing = {"type": "object", "properties": {}, "additionalProperties": False}
    tools = [{"function": {"name": "f", "parameters": schema}}, {"function": {"name": "now", "parameters": nothing}}]
    matcher = backend.compile("structural_tag", tag_text(form.calls(tools, many=True))).matcher()
    accepted = all(matcher.accept(token) for token in tokenizer.encode(text, add_special_tokens=False))
    assert (accepted and matcher.is_complete()) == fits


HOSTILE: list[Any] = [5, "x", None, True, [], {}, {"type": 5}, {"type": [{}]}, {"anyOf": 5}, {"enum": 5}, {"const": {}}]


@pytest.mark.parametrize("name", families())
def test_schemas_that_are_none_break_nothing(name: str) -> None:
    parser = families()[name]
    for bad in HOSTILE:
        for schema in (
            {"properties": {"a": bad, "b": {"properties": bad}}},
            {"required": bad, "properties": {"a": {}}},
        ):
            tools = [{"type": "function", "function": {"name": "f", "parameters": schema, "strict": True}}]
            if hasattr(parser, "forced"):
                assert parser.forced(ParserContext(tools), tools, many=True).value
                parser.strict(ParserContext(tools), tools, many=True)
            for text in ('<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>', "[f(a=1)]", XML):
                reader = parser(ParserContext(tools))
                names = [event.name for event in (*reader.feed(text), *reader.finish()) if isinstance(event, ToolStart)]
                assert set(names) <= {"f"}


XML = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"


def test_the_arguments_of_an_enforced_call_are_an_object() -> None:
    loose = {"name": "f", "parameters": {"anyOf": [{"type": "object"}, {"type": "string"}]}}
    form = Written('{"name": "{name}", "arguments": ', "}").call(loose)
    schemas = [part["json_schema"] for part in form["elements"] if part["type"] == "json_schema"]
    assert schemas == [{**loose["parameters"], "type": "object"}]


def test_a_call_without_arguments_is_a_format_of_its_own() -> None:
    (tag,) = Written("<f={name}>", "</f>", argument=("<{key}>", "</>")).tags([{"function": {"name": "f"}}], many=False)
    assert tag["content"] == {"type": "const_string", "value": ""}
