"""Calls that must be made, as a schema."""

from __future__ import annotations

import json

import jsonschema
import pytest

from core.api import RequestError
from core.frontend.forced import calls_grammar, calls_schema

POINT = {"$defs": {"P": {"type": "integer"}}, "properties": {"x": {"$ref": "#/$defs/P"}}, "required": ["x"]}
NAME = {"definitions": {"P": {"type": "string"}}, "properties": {"x": {"$ref": "#/definitions/P"}}, "required": ["x"]}


def tool(name, parameters=None):
    return {"type": "function", "function": {"name": name, **({"parameters": parameters} if parameters else {})}}


TOOLS = [tool("point", POINT), tool("name", NAME), tool("anything")]


def valid(schema, value):
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def test_calls_of_every_function_with_their_own_arguments():
    schema = calls_schema(TOOLS)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert valid(schema, [{"name": "point", "parameters": {"x": 5}}, {"name": "name", "parameters": {"x": "a"}}])
    assert valid(schema, [{"name": "anything", "parameters": {"whatever": [1]}}])
    for wrong in (
        [],
        {},
        [{"name": "point", "parameters": {"x": "a"}}],
        [{"name": "name", "parameters": {"x": 5}}],
        [{"name": "other", "parameters": {}}],
        [{"name": "anything", "parameters": 5}],
        [{"name": "anything"}],
    ):
        assert not valid(schema, wrong)


def test_a_named_function_is_called_once():
    schema = calls_schema(TOOLS, function="name")
    call = {"name": "name", "parameters": {"x": "a"}}
    assert valid(schema, [call]) and not valid(schema, [call, call])
    assert not valid(schema, [{"name": "point", "parameters": {"x": 5}}])


def test_one_call_at_a_time():
    call = {"name": "anything", "parameters": {}}
    assert valid(calls_schema(TOOLS), [call, call])
    assert not valid(calls_schema(TOOLS, parallel=False), [call, call])


def test_a_function_that_nobody_offers():
    with pytest.raises(RequestError, match="names 'f'") as caught:
        calls_schema(TOOLS, function="f")
    assert caught.value.param == "tool_choice"


def test_the_grammar_is_that_schema():
    grammar = calls_grammar(TOOLS, function="point")
    assert (grammar.kind, grammar.param) == ("json_schema", "tool_choice")
    assert json.loads(grammar.value) == calls_schema(TOOLS, function="point")
