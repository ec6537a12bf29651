"""JSON schemas: whatever comes to its end is valid, and what cannot be enforced is refused."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.mark.covers("GRAM-01")
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data(), seed=st.integers(0, 1000))
def test_whatever_comes_to_its_end_is_valid(bench, schemas, data, seed):
    schema = data.draw(schemas)
    try:
        text = bench.walk("json_schema", json.dumps(schema), seed)
    except ValueError:
        return  # refused, which the cases below pin down
    # A walk at random also writes bytes that are no UTF-8, which no model does; they read as several characters.
    if text is not None and "\ufffd" not in text:
        jsonschema.validate(json.loads(text), schema)


REFUSED = [
    {"not": {"type": "integer"}},
    {"if": {"type": "integer"}, "then": {"minimum": 3}},
    {"type": "array", "contains": {"type": "integer"}},
    {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
    {"type": "object", "properties": {"a": {}}, "dependentRequired": {"a": ["b"]}},
    {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    {"$ref": "https://example.com/schema"},
    {"type": "object", "properties": {"a": {"$ref": "other.json"}}},
]


@pytest.mark.parametrize("schema", REFUSED, ids=lambda schema: str(schema)[:40])
def test_what_neither_driver_enforces_is_refused(bench, schema):
    with pytest.raises(ValueError, match=r"enforced|Unimplemented|not supported|not present|Resource"):
        bench.backend.compile("json_schema", json.dumps(schema))


LEFT_TO_OTHERS = [
    {"type": "number", "multipleOf": 0.5},
    {"type": "string", "pattern": "^a*$", "minLength": 2},
    {"allOf": [{"type": "integer"}, {"minimum": 3}]},
    {"type": "object", "properties": {"a": {}}, "required": ["z"]},
    {"$ref": "#/$defs/n", "minimum": 3, "$defs": {"n": {"type": "integer"}}},
    {"minimum": 3},
    {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
    {"items": {"items": {"type": "integer", "enum": [1, 2], "minimum": 2}}},
]


@pytest.mark.parametrize("schema", LEFT_TO_OTHERS, ids=lambda schema: str(schema)[:40])
def test_what_one_driver_would_leave_out_it_refuses_and_the_other_enforces(bench, schema):
    if bench.name == "xgrammar":
        with pytest.raises(ValueError, match="not enforced"):
            bench.backend.compile("json_schema", json.dumps(schema))
        return
    for seed in range(8):
        text = bench.walk("json_schema", json.dumps(schema), seed)
        if text is not None:
            jsonschema.validate(json.loads(text), schema)


KEYWORDS = [
    ({"type": "integer", "multipleOf": 3}, "9", "10"),
    ({"type": "integer", "exclusiveMinimum": 3}, "4", "3"),
    ({"type": "number", "exclusiveMaximum": 1.5}, "1.2", "1.5"),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, "[1, 2]", "[1]"),
    ({"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, "[1]", "[1, 2]"),
    ({"type": "string", "pattern": "^a+$"}, '"aa"', '"b"'),
    ({"type": "string", "maxLength": 2}, '"aa"', '"aaa"'),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, '{"a": 1}', "{}"),
    (
        {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
        '{"x": 1}',
        '{"x": "a"}',
    ),
    ({"type": "object"}, '{"q": 1}', "[]"),
    ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"a": 1, "q": null}', '{"a": null}'),
    ({"type": "object", "properties": {}}, '{"q": 1}', "[]"),
    ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, '{"a": 1}', '{"q": 1}'),
    ({"type": "array"}, '[1, "a"]', "{}"),
    ({"type": "array", "minItems": 2}, '[1, "a"]', "[1]"),
    ({"type": "array", "prefixItems": [{"type": "integer"}], "minItems": 2}, "[1, null]", '["a", 1]'),
    ({"type": "object", "minProperties": 1}, '{"q": 1}', "{}"),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "4", "null"),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "4", "null"),
    ({"type": ["integer", "null"]}, "null", '"a"'),
    ({"type": "string", "enum": ["a", 1]}, '"a"', "1"),
    ({"const": {"a": 1}}, '{"a": 1}', '{"a": 2}'),
    (
        {
            "$ref": "#/$defs/n",
            "$defs": {
                "n": {
                    "type": "object",
                    "properties": {"v": {"type": "integer"}, "n": {"$ref": "#/$defs/n"}},
                    "required": ["v"],
                }
            },
        },
        '{"v": 1, "n": {"v": 2}}',
        '{"n": {}}',
    ),
    (
        {
            "oneOf": [
                {"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]},
                {
                    "type": "object",
                    "properties": {"kind": {"const": "b"}, "n": {"type": "integer"}},
                    "required": ["kind"],
                },
            ]
        },
        '{"kind": "b", "n": 3}',
        '{"kind": "c"}',
    ),
]


@pytest.mark.parametrize(
    ("name", "valid"),
    [("uuid", "123e4567-e89b-12d3-a456-426614174000"), ("date", "2026-11-21"), ("email", "a@example.com")],
)
def test_formats_are_enforced(bench, name, valid):
    schema = json.dumps({"type": "string", "format": name})
    assert bench.takes("json_schema", schema, f'"{valid}"')
    assert not bench.takes("json_schema", schema, '"x"')


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize(("schema", "valid", "invalid"), KEYWORDS, ids=lambda value: str(value)[:40])
def test_keywords_are_enforced(bench, schema, valid, invalid):
    assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(valid))
    assert not jsonschema.Draft202012Validator(schema).is_valid(json.loads(invalid))
    # Listed values are taken in the one spelling that a driver writes them in.
    spellings = (valid, valid.replace(" ", ""))
    assert any(bench.takes("json_schema", json.dumps(schema), text) for text in spellings)
    assert not bench.takes("json_schema", json.dumps(schema), invalid)


@pytest.mark.parametrize("pattern", ["(?=a)b", "(?!a)b", "(?<=a)b", "a(?<!b)c"])
def test_patterns_that_look_around_are_refused(bench, pattern):
    with pytest.raises(ValueError, match="look"):
        bench.backend.compile("regex", pattern)
    with pytest.raises(ValueError, match="look"):
        bench.backend.compile("json_schema", json.dumps({"type": "string", "pattern": pattern}))


@pytest.mark.parametrize("pattern", [r"\(?=", r"[(?=]b", r"[\](?!]", r"\\\(?!a"])
def test_what_only_reads_like_looking_around_is_none(bench, pattern):
    bench.backend.compile("regex", pattern)


@pytest.mark.parametrize(
    "schema", [{"anyOf": []}, {"type": []}, {"properties": {"a": {"oneOf": []}}, "type": "object"}]
)
def test_alternatives_without_any_are_refused(bench, schema):
    if bench.name == "llguidance" and "properties" in schema:  # which leaves out a property that can have no value
        assert bench.takes("json_schema", json.dumps(schema), "{}")
        return
    with pytest.raises(ValueError, match="empty"):
        bench.backend.compile("json_schema", json.dumps(schema))
