"""Structured output over HTTP: every spelling becomes one grammar, wrong ones name their field."""

from __future__ import annotations

import json

import pytest
from core_plugin_openai.protocol import ChatBody, CompletionBody
from core_plugin_openai.structured import requested_form

from core.api import RequestError
from core.api.grammars import Grammar, Thinking
from core.api.parsers import ParserContext, ThinkingTags
from core.api.sampling_params import SamplingParams
from core.frontend.answering.parsing import AnswerParser
from core.frontend.answering.thinking import after_thinking
from core.server.serving.request import grammar_of

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TEXT = json.dumps(SCHEMA)
TAG = {
    "type": "triggered_tags",
    "triggers": ["<f>"],
    "tags": [{"type": "tag", "begin": "<f>", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": "</f>"}],
}


def requested_grammar(body):
    form = requested_form(body)
    return None if form is None else grammar_of(form.structured, form.names)


def of(**fields):
    body = ChatBody(messages=[{"role": "user", "content": "a"}], **fields)
    assert requested_grammar(body) == requested_grammar(CompletionBody(prompt="a", **fields))
    return requested_grammar(body)


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize(
    ("fields", "kind", "value"),
    [
        ({"response_format": {"type": "json_object"}}, "json_object", ""),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
            "json_schema",
            TEXT,
        ),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, "json_schema", TEXT),
        ({"response_format": {"type": "json_object", "schema": {}}}, "json_object", ""),
        ({"response_format": {"type": "json_object", "schema": None}}, "json_object", ""),
        ({"json_schema": SCHEMA}, "json_schema", TEXT),
        ({"json_schema": True}, "json_schema", "true"),
        ({"json_schema": {}, "grammar": ""}, "json_schema", "{}"),
        ({"grammar": 'root ::= "a"'}, "grammar", 'root ::= "a"'),
        (
            {"grammar": 'root ::= "a"', "json_schema": None, "response_format": {"type": "text"}},
            "grammar",
            'root ::= "a"',
        ),
        ({"structured_outputs": {"json": SCHEMA}}, "json_schema", TEXT),
        ({"structured_outputs": {"json": TEXT}}, "json_schema", TEXT),
        ({"structured_outputs": {"json": True}}, "json_schema", "true"),
        ({"structured_outputs": {"json_object": True}}, "json_object", ""),
        ({"structured_outputs": {"regex": "a+", "choice": None}}, "regex", "a+"),
        ({"structured_outputs": {"choice": ["x", "y", "x"]}}, "choice", '["x", "y"]'),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, "grammar", 'root ::= "a"'),
        ({"guided_json": SCHEMA}, "json_schema", TEXT),
        ({"guided_json": TEXT}, "json_schema", TEXT),
        ({"guided_regex": "a"}, "regex", "a"),
        ({"guided_choice": ["a", "b"]}, "choice", '["a", "b"]'),
        ({"guided_grammar": "start: A"}, "grammar", "start: A"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_every_spelling_gives_its_grammar(fields, kind, value):
    found = of(**fields)
    assert (found.kind, found.value) == (kind, value)
    assert found.param.partition(".")[0] in fields


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "structural_tag", "format": TAG}},
        {"structured_outputs": {"structural_tag": {"format": TAG}}},
        {"structured_outputs": {"structural_tag": json.dumps({"type": "structural_tag", "format": TAG})}},
        {
            "response_format": {
                "type": "structural_tag",
                "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}],
                "triggers": ["<f>"],
            }
        },
    ],
)
def test_structural_tags_in_both_forms(fields):
    found = of(**fields)
    assert found.kind == "structural_tag"
    assert json.loads(found.value) == {"type": "structural_tag", "format": TAG}


@pytest.mark.parametrize(
    "fields",
    [{}, {"response_format": {"type": "text"}}, {"structured_outputs": {}}, {"grammar": "", "json_schema": None}],
)
def test_plain_text_is_no_grammar(fields):
    assert of(**fields) is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "poem"}}, "response_format.type"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": [1]}}},
            "response_format.json_schema.schema",
        ),
        ({"response_format": {"type": "structural_tag"}}, "response_format.structural_tag"),
        ({"structured_outputs": {"json": SCHEMA, "regex": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"disable_any_whitespace": True}}, "structured_outputs"),
        ({"structured_outputs": {"jsn": SCHEMA}}, "structured_outputs"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
        ({"structured_outputs": {"json_object": 1}}, "structured_outputs.json_object"),
        ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": ["a", ""]}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": [str(one) for one in range(10_001)]}}, "structured_outputs.choice"),
        ({"structured_outputs": {"structural_tag": {}}}, "structured_outputs.structural_tag"),
        (
            {"structured_outputs": {"regex": "a", "disable_any_whitespace": True}},
            "structured_outputs.disable_any_whitespace",
        ),
        (
            {"structured_outputs": {"json": SCHEMA, "whitespace_pattern": 5}},
            "structured_outputs.whitespace_pattern",
        ),
        (
            {"structured_outputs": {"regex": "a", "disable_additional_properties": True}},
            "structured_outputs.disable_additional_properties",
        ),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_additional_properties": "no"}},
            "structured_outputs.disable_additional_properties",
        ),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
        ({"structured_outputs": {"regex": "a" * (2**20 + 1)}}, "structured_outputs.regex"),
        ({"response_format": {"type": "json_object", "schema": [1]}}, "response_format.schema"),
        ({"response_format": {"type": "json_object"}, "json_schema": SCHEMA}, "json_schema"),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}, "grammar": "x"}, "grammar"),
        ({"json_schema": SCHEMA, "grammar": 'root ::= "a"'}, "grammar"),
        ({"guided_choice": ["a"], "json_schema": False}, "json_schema"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_is_wrong_is_named(fields, param):
    with pytest.raises(RequestError) as caught:
        of(**fields)
    assert caught.value.param.startswith(param)
    assert caught.value.status == 400


def test_deep_schemas_are_refused():
    schema: dict = {}
    for _ in range(200):
        schema = {"items": schema}
    with pytest.raises(RequestError, match="nested deeper than 100"):
        of(structured_outputs={"json": schema})


@pytest.mark.covers("GRAM-01")
def test_styles_are_written_into_the_schema():
    found = json.loads(of(structured_outputs={"json": SCHEMA, "disable_any_whitespace": True}).value)
    assert found == {**SCHEMA, "x-whitespace": "none"}
    found = json.loads(of(guided_json=SCHEMA, guided_whitespace_pattern="[ ]?").value)
    assert found == {**SCHEMA, "x-whitespace": "[ ]?"}
    with pytest.raises(RequestError, match="needs guided_json"):
        of(guided_whitespace_pattern="[ ]?")
    assert (
        of(structured_outputs={"json_object": True, "disable_any_whitespace": True}).value == '{"x-whitespace": "none"}'
    )


@pytest.mark.parametrize(
    ("fields", "due"),
    [
        ({"json": SCHEMA}, None),
        ({"json": SCHEMA, "disable_additional_properties": True}, False),
        ({"json": SCHEMA, "disable_additional_properties": False}, True),
        ({"json_object": True, "disable_additional_properties": True}, False),
        ({"structural_tag": {"format": TAG}, "disable_additional_properties": False}, True),
        ({"regex": "a", "disable_additional_properties": False}, None),
    ],
)
def test_a_request_may_say_whether_objects_are_closed(fields, due):
    assert of(structured_outputs=fields).additional_properties is due


def test_python_writes_the_same():
    assert SamplingParams(grammar={"json": SCHEMA}).grammar == Grammar("json_schema", TEXT, param="grammar.json")
    assert SamplingParams(grammar={}).grammar is None
    with pytest.raises(RequestError, match="exactly one") as caught:
        SamplingParams(grammar={"regex": "a", "choice": ["b"]})
    assert caught.value.param == "grammar"


TAGS = ThinkingTags("</think>", "<think>")


@pytest.mark.parametrize(
    ("grammar", "tags", "thinking"),
    [
        (Grammar("regex", "a"), TAGS, Thinking("</think>", "<think>")),
        (Grammar("regex", "a"), ThinkingTags("</t>", open=True), Thinking("</t>", open=True)),
        (Grammar("regex", "a"), None, None),
        (Grammar("regex", "a", Thinking("mine")), TAGS, Thinking("mine")),
    ],
)
@pytest.mark.covers("GRAM-01")
def test_the_grammar_begins_behind_the_thinking(grammar, tags, thinking):
    parser = AnswerParser(lambda ctx: None, thinking=lambda ctx: tags)
    found = after_thinking(SamplingParams(grammar=grammar), parser, ParserContext())
    assert found.grammar.thinking == thinking
    assert (found.grammar.kind, found.grammar.value) == ("regex", "a")


def test_nothing_changes_without_a_grammar_or_a_parser_that_knows():
    plain, asked = SamplingParams(), SamplingParams(grammar=Grammar("regex", "a"))
    knows = AnswerParser(lambda ctx: None, thinking=lambda ctx: TAGS)
    assert after_thinking(plain, knows, ParserContext()) is plain
    assert after_thinking(asked, None, ParserContext()) is asked
    assert after_thinking(asked, AnswerParser(lambda ctx: None), ParserContext()) is asked
