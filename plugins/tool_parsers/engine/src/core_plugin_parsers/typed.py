"""Values that a format writes as bare text, and what the tool's schema makes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_TYPES = {
    "str": "string", "text": "string", "int": "integer", "long": "integer", "float": "number", "double": "number",
    "bool": "boolean", "dict": "object", "map": "object", "list": "array", "tuple": "array", "none": "null",
}  # fmt: skip
"""Names that tools' schemas have for JSON's types, although JSON Schema does not know them."""


def types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the JSON types that a schema names, those of its alternatives included; empty if it names none."""
    found: set[str] = set()
    named = schema.get("type")
    names = [named] if isinstance(named, str) else [one for one in listed(named) if isinstance(one, str)]
    found.update(_TYPES.get(name.lower(), name.lower()) for name in names)
    found.update(_type(value) for value in listed(schema.get("enum")))
    if "const" in schema:
        found.add(_type(schema["const"]))
    for key in ("anyOf", "oneOf", "allOf"):
        for one in listed(schema.get(key)):
            if isinstance(one, Mapping):
                found |= types_of(one)
    return frozenset(found)


def listed(value: Any) -> list[Any]:
    """Return a list of a schema that somebody else wrote; an empty one where there is something else."""
    return value if isinstance(value, list) else []


def properties_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the properties that a schema names; none where it names them in no way that means something."""
    found = schema.get("properties")
    return found if isinstance(found, Mapping) else {}


def parameter_types(tool: Mapping[str, Any] | None, name: str) -> frozenset[str]:
    """Return the JSON types of one parameter of a tool's schema; empty if nothing is said."""
    schema = properties_of(tool or {}).get(name)
    return types_of(schema) if isinstance(schema, Mapping) else frozenset()


def said_types(types: frozenset[str], is_string: bool | None) -> frozenset[str]:
    """Return which of the schema's types a value may have of which the message says that it is a text, or is none.

    Models get this wrong, schemas do not: where the schema allows only the one or only the other, it decides.
    """
    if is_string is None:
        return types
    if not types:
        return frozenset({"string"}) if is_string else types
    allowed = types & {"string"} if is_string else types - {"string"}
    return allowed or types


def is_text(types: frozenset[str]) -> bool:
    """Whether a value of these types is certainly a text."""
    return types == {"string"}


def to_json(text: str, types: frozenset[str]) -> str:
    """Return a value as JSON: what it reads as where its types allow that, else the text."""
    found = _as_json(text, types)
    if found is not None:
        return found
    lower = text.strip().lower()
    if "boolean" in types and lower in ("true", "false"):
        return lower
    if "null" in types and lower in ("null", "none"):
        return "null"
    return json.dumps(text, ensure_ascii=False)


def _as_json(text: str, types: frozenset[str]) -> str | None:
    """Return the text as JSON, written anew; None if it is none, or of another type."""
    try:
        value = json.loads(text)
        fits = not types or _fits(value, types)
        return json.dumps(value, ensure_ascii=False, allow_nan=False) if fits else None
    except (ValueError, RecursionError):
        return None


def _fits(value: Any, types: frozenset[str]) -> bool:
    kind = _type(value)
    if kind == "integer" and types & {"integer", "number"}:
        return True
    if kind == "number" and "integer" in types and float(value).is_integer():
        return True
    return kind in types


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    kinds = {str: "string", int: "integer", float: "number", dict: "object", list: "array"}
    return kinds.get(type(value), "string")
