"""Objects of schemas are closed: plain ones, composed ones as a whole, and those that say more not at all."""

from __future__ import annotations

import copy
import json
import threading

import jsonschema
import pytest
from core_plugin_structured.closing import close_objects, compiled_value
from core_plugin_structured.compiling.pool import CompilePool, Compiler, PoolLimits

from core.api.grammars import Grammar, structured_output

INTEGER = {"type": "integer"}
SHUT = {"additionalProperties": False}


def thing(*required, **properties):
    found = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


A, B = thing(a=INTEGER), thing(b=INTEGER)
TAGGED = [thing("kind", kind={"const": "a"}, x=INTEGER), thing("kind", kind={"const": "b"}, y=INTEGER)]

CLOSED = {
    "an object": (A, {**A, **SHUT}),
    "no properties at all": (thing(), {**thing(), **SHUT}),
    "without a type": ({"properties": {"a": {}}}, {"properties": {"a": {}}, **SHUT}),
    "or nothing": ({**A, "type": ["object", "null"]}, {**A, "type": ["object", "null"], **SHUT}),
    "a required name without a schema": (thing("z", a=INTEGER), {**thing("z", a=INTEGER, z=True), **SHUT}),
    "inside of properties": (thing(o=A), {**thing(o={**A, **SHUT}), **SHUT}),
    "inside of a list": ({"items": A}, {"items": {**A, **SHUT}}),
    "inside of a tuple": ({"prefixItems": [A]}, {"prefixItems": [{**A, **SHUT}]}),
    "inside of further properties": ({"additionalProperties": A}, {"additionalProperties": {**A, **SHUT}}),
    "alternatives": ({"anyOf": [A, {"type": "null"}]}, {"anyOf": [{**A, **SHUT}, {"type": "null"}]}),
    "allOf of one": ({"title": "T", "allOf": [A]}, {"title": "T", "allOf": [{**A, **SHUT}]}),
    "a definition": (
        {"$ref": "#/$defs/A", "$defs": {"A": A}},
        {"$ref": "#/$defs/A", "$defs": {"A": {**A, **SHUT}}},
    ),
    "a definition anywhere": (
        {"items": {"$ref": "#/parts/x~1y"}, "parts": {"x/y": A}},
        {"items": {"$ref": "#/parts/x~1y"}, "parts": {"x/y": {**A, **SHUT}}},
    ),
    "names like keywords": (
        thing(properties=thing(x=True), enum={"properties": {"y": True}}),
        {**thing(properties={**thing(x=True), **SHUT}, enum={"properties": {"y": True}, **SHUT}), **SHUT},
    ),
}
LEFT = {
    "true": True,
    "no object": INTEGER,
    "any object": {"type": "object"},
    "only required": {"type": "object", "required": ["a"]},
    "open": {**A, "additionalProperties": True},
    "a schema for others": {**A, "additionalProperties": INTEGER},
    "patterns": {**A, "patternProperties": {"^x": INTEGER}},
    "unevaluated": {**A, "unevaluatedProperties": True},
    "names": {**A, "propertyNames": {"pattern": "^a"}},
    "more than are named": {**A, "minProperties": 2},
    "conditions": {**A, "if": {"required": ["a"]}, "then": B},
    "dependent": {**A, "dependentSchemas": {"a": B}},
    "not": {**A, "not": B},
    "listed values": {**A, "enum": [{"b": 1}]},
    "a default": {"default": A, "examples": [A], "const": A},
    "an unknown reference": {**A, "$ref": "other.json"},
    "an allOf that says more": {"allOf": [A, {**B, "additionalProperties": True}]},
    "an allOf of any objects": {"allOf": [{"type": "object"}, {"required": ["a"]}]},
    "another type": {**A, "type": "array"},
}


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize("name", CLOSED)
def test_objects_that_name_their_properties_have_no_others(name):
    given, due = CLOSED[name]
    assert close_objects(copy.deepcopy(given)) == due


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize("name", LEFT)
def test_what_says_more_or_nothing_is_left_as_it_is(name):
    assert close_objects(copy.deepcopy(LEFT[name])) == LEFT[name]


BASE = {"$defs": {"Base": thing("id", id=INTEGER, parent={"$ref": "#/$defs/Base"})}}
COMPOSED = {
    "allOf": ({"allOf": [A, B]}, ["{}", '{"a": 1, "b": 2}'], ['{"a": "x"}', '{"c": 1}']),
    "allOf inside of allOf": (
        {"allOf": [A, {"allOf": [B, thing(c=INTEGER)]}]},
        ['{"a": 1, "b": 2, "c": 3}'],
        ['{"d": 1}', '{"c": "x"}'],
    ),
    "properties beside a reference": (
        {"$ref": "#/$defs/Base", **thing(x=INTEGER), **BASE},
        ['{"id": 1, "x": 2}', '{"id": 1, "parent": {"id": 2}}'],
        ['{"x": 2}', '{"id": 1, "y": 2}', '{"id": 1, "parent": {"id": 2, "x": 3}}'],
    ),
    "a definition used alone and in a composition": (
        thing(alone={"$ref": "#/$defs/Base"}, more={"allOf": [{"$ref": "#/$defs/Base"}, B]}) | BASE,
        ['{"alone": {"id": 1}, "more": {"id": 1, "b": 2}}'],
        [
            '{"alone": {"id": 1, "b": 2}}',
            '{"more": {"id": 1, "c": 2}}',
            '{"alone": {"id": 1, "parent": {"id": 1, "c": 1}}}',
        ],
    ),
    "alternatives beside properties": (
        {**thing("kind", kind={"enum": ["a", "b"]}), "anyOf": TAGGED},
        ['{"kind": "a", "x": 1}', '{"kind": "b", "y": 1}'],
        ['{"kind": "a", "y": 1}', '{"kind": "b", "x": 1}', '{"kind": "a", "z": 1}', "{}"],
    ),
    "alternatives that only require": (
        {**thing(a=INTEGER, b=INTEGER), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ['{"a": 1}', '{"b": 1}', '{"a": 1, "b": 1}'],
        ["{}", '{"a": 1, "c": 1}'],
    ),
    "alternatives by reference beside a property": (
        {**thing(n=INTEGER), "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}
        | {"$defs": dict(zip("ab", TAGGED, strict=True))},
        ['{"kind": "a", "x": 1, "n": 1}', '{"kind": "b", "n": 1}'],
        ['{"kind": "a", "y": 1}', '{"n": 1}', '{"kind": "b", "m": 1}'],
    ),
    "alternatives of both kinds": (
        {"anyOf": [A, B], "oneOf": TAGGED},
        ['{"kind": "a", "x": 1, "a": 2}', '{"kind": "b", "b": 1}'],
        ['{"a": 1}', '{"kind": "a", "c": 1}'],
    ),
    "alternatives one of which is no object": (
        {"properties": {"a": INTEGER}, "anyOf": [B, {"type": "null"}]},
        ['{"a": 1, "b": 2}', "null"],
        ['{"c": 1}', "4"],
    ),
    "a property that two parts describe": (
        {"allOf": [thing("o", o=thing("a", a=INTEGER)), thing(o=thing("b", b=INTEGER))]},
        ['{"o": {"a": 1, "b": 2}}', '{"o": {"a": 1, "b": 2, "c": 3}}'],
        ['{"o": {"a": 1, "b": 2}, "p": 1}'],
    ),
    "deeper, by references, in lists": (
        {"$ref": "#/$defs/X", "properties": {"l": {"items": thing(o=thing("b", b=INTEGER))}}}
        | {"$defs": {"X": thing(l={"type": "array", "items": thing(o=thing("a", a=INTEGER), p=A)})}},
        ['{"l": [{"o": {"a": 1, "b": 2}}]}'],
        ['{"l": [{"p": {"a": 1, "c": 2}}]}', '{"m": 1}'],
    ),
    "a property and a pattern": (
        {**thing("x1", x1=thing("a", a=INTEGER)), "patternProperties": {"^x": thing("b", b=INTEGER)}},
        ['{"x1": {"a": 1, "b": 2}}'],
        ['{"x1": {"a": 1}}'],
    ),
    "a property of alternatives, which need not hold together": (
        {**thing(n=INTEGER), "anyOf": [thing("o", o=A), thing("o", o=B)]},
        ['{"o": {"a": 1}}', '{"o": {"b": 1}, "n": 1}'],
        ['{"o": {"a": 1, "b": 1}}', '{"o": {"c": 1}}'],
    ),
    "a schema that holds itself": (
        thing(child={"$ref": "#"}, children={"type": "array", "items": {"$ref": "#"}}),
        ['{"child": {"children": [{}]}}'],
        ['{"child": {"x": 1}}', '{"children": [{"x": 1}]}'],
    ),
}


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize("name", COMPOSED)
def test_composed_objects_are_closed_as_a_whole(name):
    """What the closed schema takes, the given one takes; what is refused beyond that has an invented property."""
    given, valid, invalid = COMPOSED[name]
    before = jsonschema.Draft202012Validator(given)
    after = jsonschema.Draft202012Validator(close_objects(copy.deepcopy(given)))
    for text in valid:
        assert before.is_valid(json.loads(text)) and after.is_valid(json.loads(text)), text
    assert [text for text in invalid if after.is_valid(json.loads(text))] == []


def test_a_schema_that_is_part_of_its_own_composition_stays_open():
    schema = thing(child={"allOf": [{"$ref": "#"}, B]})
    after = jsonschema.Draft202012Validator(close_objects(copy.deepcopy(schema)))
    assert after.is_valid({"child": {"b": 1, "child": {"b": 2}}}) and not after.is_valid({"child": {"c": 1}})


def test_the_order_of_properties_stays():
    schema = close_objects({**thing("z", "b", b=INTEGER, a=INTEGER), "allOf": [thing(c=INTEGER)]})
    assert list(schema["properties"]) == ["b", "a", "z", "c"]


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"A": {"allOf": [thing(**{f"p{n}": {}}) for n in range(1500)]}}}
        | {"items": [{"$ref": "#/$defs/A", "properties": {}} for _ in range(1500)]},
        {"properties": {f"p{n}": {} for n in range(3000)}, "anyOf": [{} for _ in range(3000)]},
        {"properties": {"p" * 5000: {}}, "anyOf": [{"title": "t"} for _ in range(3000)]},
    ],
    ids=["parts of many", "names in many", "long names in many"],
)
def test_schemas_that_would_keep_a_thread_busy_are_refused(schema):
    with pytest.raises(ValueError, match="too many to be followed"):
        close_objects(schema)


def test_a_schema_as_large_as_any_is_closed():
    """Only compositions are bounded: what is closed by itself takes as long as it is read."""
    name = "a" * 100
    schema = {
        "$defs": {name: copy.deepcopy(A)},
        "items": [{"anyOf": [{"$ref": f"#/$defs/{name}"}]} for _ in range(8000)],
    }
    assert len(json.dumps(schema)) > 2**20
    assert close_objects(schema)["$defs"][name] == {**A, **SHUT}


TAG = {"type": "tag", "begin": "<", "content": {"type": "json_schema", "json_schema": A}, "end": ">"}


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize(
    ("fields", "option", "closed"),
    [
        ({"json": A}, False, True),
        ({"json": A}, True, False),
        ({"json": A, "disable_additional_properties": True}, True, True),
        ({"json": A, "disable_additional_properties": False}, False, False),
        ({"json": A, "disable_additional_properties": None}, False, True),
        ({"structural_tag": {"format": TAG}}, False, True),
        ({"structural_tag": {"format": TAG}}, True, False),
        ({"structural_tag": {"format": TAG}, "disable_additional_properties": False}, False, False),
    ],
)
def test_a_request_s_word_comes_before_the_engine_s(fields, option, closed):
    grammar = structured_output(fields)
    value = compiled_value(grammar, additional_properties=option)
    assert ('"additionalProperties": false' in value) == closed
    assert json.loads(value) == json.loads(grammar.value) or closed


@pytest.mark.parametrize(
    "fields", [{"regex": "{a}"}, {"choice": ["a"]}, {"grammar": "start: A"}, {"json_object": True}]
)
def test_other_grammars_are_not_read(fields):
    grammar = structured_output({**fields, "disable_additional_properties": False})
    assert compiled_value(grammar, additional_properties=False) == grammar.value


def test_whether_objects_are_open_decides_what_is_compiled():
    seen, done = [], threading.Event()

    def compile(kind, value, turn):
        seen.append(value)
        return done, 0

    limits = PoolLimits(workers=1)
    pool = CompilePool(
        [Compiler("one", frozenset({"json_schema"}), compile)],
        limits,
        read=lambda grammar: compiled_value(grammar, additional_properties=False),
    )
    both = [Grammar("json_schema", json.dumps(A), additional_properties=given) for given in (None, True, None)]
    jobs = [pool.submit(grammar) for grammar in (*both, Grammar("json_schema", "{"))]
    assert all(job.wait(30) for job in jobs)
    assert list(map(json.loads, seen)) == [{**A, **SHUT}, A]
    with pytest.raises(ValueError, match="not JSON"):
        jobs[-1].result()
