"""Calls that a model must make, as a grammar: `[{"name": ..., "parameters": {...}}, ...]`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core.api.errors import RequestError
from core.engine.grammars import Grammar

_ANYTHING: Mapping[str, Any] = {"type": "object"}
_DEFINITIONS = ("$defs", "definitions")


def calls_grammar(
    tools: Sequence[Mapping[str, Any]],
    *,
    function: str | None = None,
    parallel: bool = True,
    param: str = "tool_choice",
) -> Grammar:
    """Return the grammar of one or more calls.

    Args:
        tools: OpenAI's `tools` list.
        function: The only function that may be called; None: any of them.
        parallel: Whether several calls may be made.

    Raises:
        RequestError: There is no such function.
    """
    schema = calls_schema(tools, function=function, parallel=parallel, param=param)
    return Grammar("json_schema", json.dumps(schema, ensure_ascii=False), param=param)


def calls_schema(
    tools: Sequence[Mapping[str, Any]],
    *,
    function: str | None = None,
    parallel: bool = True,
    param: str = "tool_choice",
) -> dict[str, Any]:
    """Return the same as a JSON schema. Definitions of the functions' schemas are gathered at its top."""
    functions = [tool["function"] for tool in tools if function in (None, tool["function"]["name"])]
    if not functions:
        raise RequestError(f"{param} names '{function}', which is not among the tools", param=param)
    definitions: dict[str, Any] = {}
    calls = [_call(one, f"f{index}_", definitions) for index, one in enumerate(functions)]
    schema: dict[str, Any] = {
        "type": "array",
        "minItems": 1,
        "items": calls[0] if len(calls) == 1 else {"anyOf": calls},
    }
    if not parallel or (function is not None):
        schema["maxItems"] = 1
    return {**schema, "$defs": definitions} if definitions else schema


def parameters_of(function: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a function's arguments; without one any object will do."""
    given = function.get("parameters")
    return given if isinstance(given, Mapping) and given else _ANYTHING


def _call(function: Mapping[str, Any], prefix: str, definitions: dict[str, Any]) -> dict[str, Any]:
    parameters = dict(parameters_of(function))
    for key in _DEFINITIONS:
        for name, one in (parameters.pop(key, None) or {}).items():
            definitions[prefix + name] = _renamed(one, prefix)
    return {
        "type": "object",
        "properties": {"name": {"const": function["name"]}, "parameters": _renamed(parameters, prefix)},
        "required": ["name", "parameters"],
        "additionalProperties": False,
    }


def _renamed(schema: Any, prefix: str) -> Any:
    """Return a schema whose references lead to the gathered definitions."""
    if isinstance(schema, list):
        return [_renamed(one, prefix) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {key: _renamed(value, prefix) for key, value in schema.items()}
    path = schema.get("$ref")
    if isinstance(path, str):
        for key in _DEFINITIONS:
            head, _, name = path.rpartition("/")
            if head == f"#/{key}":
                found["$ref"] = f"#/$defs/{prefix}{name}"
    return found
