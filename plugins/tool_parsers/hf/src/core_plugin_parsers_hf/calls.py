"""From what a template makes of a call to its name and its arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from core_plugin_parsers.json_object import as_object
from core_plugin_parsers.typed import is_text, parameter_types, to_json

from core_plugin_parsers_hf.content import read_content, transformed
from core_plugin_parsers_hf.template import Field

MOST_BODY = 2**18
"""Characters of a call that a template's patterns are let loose on."""

Tools = Mapping[str, Mapping[str, Any]]


def read_calls(body: str, field: Field, captures: Mapping[str, str], tools: Tools) -> list[tuple[str, str]]:
    """Return name and arguments, as JSON, of the calls that a field holds.

    Args:
        captures: Named groups of the field's opening delimiter.
        tools: JSON schema of each tool's parameters: they decide what a value that is written as text stands for.

    Raises:
        ValueError: It holds something else.
    """
    if len(body) > MOST_BODY:
        raise ValueError("this is too long for a call")
    try:
        value = read_content(body, field.content, field.arguments)
        if field.transform is not None:
            value = _transformed(value, field, captures)
        found = list(_calls(value, tools))
    except (KeyError, TypeError, AttributeError, RecursionError, TimeoutError) as error:
        raise ValueError(str(error)) from error
    if not found:
        raise ValueError("this is no call")
    return found


def _transformed(value: Any, field: Field, captures: Mapping[str, str]) -> Any:
    if field.each:
        return [transformed(field.transform, {**captures, **item}) for item in value]
    return transformed(field.transform, {**captures, "content": value})


def _calls(value: Any, tools: Tools) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for one in value:
            yield from _calls(one, tools)
        return
    function = value.get("function", value)
    name, arguments = function["name"], function.get("arguments", function.get("parameters"))
    if not isinstance(name, str) or not name:
        raise ValueError("a call has no name")
    text = _written(arguments, tools.get(name))
    (name + text).encode()  # half a surrogate pair, which JSON can write, is in no answer
    yield name, text


def _written(arguments: Any, schema: Mapping[str, Any] | None) -> str:
    if isinstance(arguments, str):
        found = as_object(json.dumps(arguments))
        if found is None:
            raise ValueError("the arguments are no object")
        return found
    if arguments is None:
        return "{}"
    values = {json.dumps(key, ensure_ascii=False): _value(key, value, schema) for key, value in arguments.items()}
    return "{" + ", ".join(f"{key}: {value}" for key, value in values.items()) + "}"


def _value(key: str, value: Any, schema: Mapping[str, Any] | None) -> str:
    types = parameter_types(schema, key)
    if isinstance(value, str) and types and not is_text(types):
        return to_json(value, types)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
