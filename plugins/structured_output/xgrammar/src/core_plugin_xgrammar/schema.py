"""JSON schemas as XGrammar reads them: what it would silently leave out is refused or written another way."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MAX_DEPTH = 64
MAX_LENGTH = 1000

_NEVER = frozenset(
    {
        "not",
        "if",
        "then",
        "else",
        "contains",
        "minContains",
        "maxContains",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "$dynamicRef",
        "$recursiveRef",
        "additionalItems",
    }
)
"""Keywords that change what is valid and that the library does not enforce."""

_NOTES = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
        "$schema",
        "$id",
        "$anchor",
        "$defs",
        "definitions",
        "discriminator",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "nullable",
        "strict",
    }
)
"""Keywords that do not change what is valid."""

_NEEDS_TYPE = {
    "minimum": "number",
    "maximum": "number",
    "exclusiveMinimum": "number",
    "exclusiveMaximum": "number",
    "multipleOf": "number",
    "pattern": "string",
    "minLength": "string",
    "maxLength": "string",
    "minItems": "array",
    "maxItems": "array",
    "minProperties": "object",
    "maxProperties": "object",
    "propertyNames": "object",
    "required": "object",
}
_APART = re.compile(r"\\.|\[[^\]\\]*(?:\\.[^\]\\]*)*\]?", re.DOTALL)
"""Pattern of escaped characters and of classes of characters."""
_LOOKS = re.compile(r"\(\?<?[=!]")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONES = ("items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "propertyNames")


def exact(schema: Any) -> Any:
    """Return an equivalent schema that the library enforces completely.

    Raises:
        ValueError: It holds something that would not be enforced; the text says what.
    """
    return _Exact(schema).rewrite(schema, 0)


class _Exact:
    def __init__(self, root: Any) -> None:
        self._root = root

    def rewrite(self, schema: Any, depth: int) -> Any:
        """Return one schema, those inside it included."""
        if depth > MAX_DEPTH:
            raise ValueError(f"the schema is nested more than {MAX_DEPTH} deep")
        if not isinstance(schema, Mapping):
            if not isinstance(schema, bool):
                raise ValueError(f"a schema must be an object, true or false, not {json.dumps(schema)[:40]}")
            return schema
        found = dict(schema)
        self._judge(found)
        if "enum" in found or "const" in found:
            return _listed(found)
        _open(found)
        if "minLength" in found or "maxLength" in found:
            found["pattern"] = _lengths(found.pop("minLength", 0), found.pop("maxLength", None))
        for key in _MAPS:
            if isinstance(found.get(key), Mapping):
                found[key] = {name: self.rewrite(one, depth + 1) for name, one in found[key].items()}
        for key in _LISTS:
            if isinstance(found.get(key), Sequence) and not isinstance(found[key], str):
                found[key] = [self.rewrite(one, depth + 1) for one in found[key]]
        for key in _ONES:
            if isinstance(found.get(key), (Mapping, bool)):
                found[key] = self.rewrite(found[key], depth + 1)
        return found

    def _judge(self, schema: Mapping[str, Any]) -> None:
        for key in schema:
            if key in _NEVER:
                raise ValueError(f"the schema's '{key}' is not enforced")
        if schema.get("uniqueItems"):
            raise ValueError("the schema's 'uniqueItems' is not enforced")
        self._judge_types(schema)
        self._judge_branches(schema)
        if "patternProperties" in schema and schema.get("additionalProperties") not in (None, False):
            raise ValueError("'patternProperties' beside 'additionalProperties' is not enforced")
        required, known = schema.get("required") or (), schema.get("properties") or {}
        if isinstance(required, list) and not set(map(str, required)) <= set(known):
            raise ValueError("'required' names a property that is not among 'properties', which is not enforced")

    def _judge_types(self, schema: Mapping[str, Any]) -> None:
        given = schema.get("type")
        types = {given} if isinstance(given, str) else set(given) if isinstance(given, list) else set()
        if given == []:
            raise ValueError("'type' must not be an empty list")
        for key, needed in _NEEDS_TYPE.items():
            fits = {"number", "integer"} if needed == "number" else {needed}
            implied = needed == "object" and "properties" in schema
            if key in schema and not types & fits and not implied:
                raise ValueError(f'\'{key}\' without "type": "{needed}" is not enforced')
        if "multipleOf" in schema and "number" in types:
            raise ValueError("'multipleOf' of numbers that are no integers is not enforced")
        if "pattern" in schema:
            check_pattern(schema["pattern"])
        if "pattern" in schema and {"minLength", "maxLength"} & set(schema):
            raise ValueError("'pattern' together with a length is not enforced")

    def _judge_branches(self, schema: Mapping[str, Any]) -> None:
        for key in ("anyOf", "oneOf", "allOf", "$ref"):
            beside = sorted(set(schema) - _NOTES - {key, "type"}) if key in schema else ()
            if beside:
                raise ValueError(f"'{beside[0]}' beside '{key}' is not enforced")
        for key in ("anyOf", "oneOf", "allOf"):
            if schema.get(key) == []:
                raise ValueError(f"'{key}' must not be empty")
        path = schema.get("$ref", "#")
        if not isinstance(path, str) or (path != "#" and not path.startswith("#/")):
            raise ValueError("'$ref' to anything but a part of the same schema is not enforced")
        if len(schema.get("allOf") or ()) > 1:
            raise ValueError("'allOf' of several schemas is not enforced")
        branches = [self._resolved(one) for one in schema.get("oneOf") or ()]
        for i, one in enumerate(branches):
            if not all(_disjoint(one, other) for other in branches[i + 1 :]):
                raise ValueError("'oneOf' of schemas that may overlap is not enforced; use anyOf")

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        """Follow references to other parts of the same document."""
        for _ in range(MAX_DEPTH):
            if not isinstance(schema, Mapping):
                return {}
            path = schema.get("$ref")
            if not isinstance(path, str) or not path.startswith("#"):
                return schema
            schema = self._root
            for step in path[1:].split("/")[1:]:
                step = step.replace("~1", "/").replace("~0", "~")
                schema = schema.get(step) if isinstance(schema, Mapping) else None
        return {}


def check_pattern(pattern: Any) -> None:
    """Refuse looking ahead and behind, which the library reads over. Raises `ValueError`."""
    if isinstance(pattern, str) and _LOOKS.search(_APART.sub("", pattern)):
        raise ValueError("patterns that look ahead or behind are not enforced")


def _open(schema: dict[str, Any]) -> None:
    """Say of arrays and objects where they are free, which the library takes otherwise."""
    types = _types(schema)
    described = len(schema.get("prefixItems") or ())
    free = not described or (schema.get("minItems") or 0) > described
    if "array" in types and free and not {"items", "unevaluatedItems"} & set(schema):
        schema["items"] = True
    further = {"patternProperties", "propertyNames", "additionalProperties", "unevaluatedProperties"}
    if ("object" in types or "properties" in schema) and not further & set(schema):
        schema["additionalProperties"] = True


def _lengths(least: Any, most: Any) -> str:
    """Return a pattern of texts of some length: lengths alone would let control characters into the JSON text."""
    if not isinstance(least, int) or not isinstance(most, (int, type(None))) or least < 0 or (most or 0) < 0:
        raise ValueError("'minLength' and 'maxLength' must be numbers of characters")
    if most is not None and most < least:
        raise ValueError(f"'maxLength' ({most}) is less than 'minLength' ({least})")
    if max(least, most or 0) > MAX_LENGTH:
        raise ValueError(f"lengths of texts beyond {MAX_LENGTH} take too long to compile")
    return f"^.{{{least},{'' if most is None else most}}}$"


def _disjoint(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether no value can be valid for both, as far as can be seen without effort."""
    first, second = _values(one), _values(other)
    if first is not None and second is not None:
        return not first & second
    types, others = _types(one), _types(other)
    if types and others and not types & others:
        return True
    shared = set(one.get("required") or ()) & set(other.get("required") or ())
    properties, further = one.get("properties") or {}, other.get("properties") or {}
    return any(
        name in properties and name in further and _tags_differ(properties[name], further[name]) for name in shared
    )


def _tags_differ(one: Any, other: Any) -> bool:
    first, second = (_values(schema) if isinstance(schema, Mapping) else None for schema in (one, other))
    return first is not None and second is not None and not first & second


def _values(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the JSON texts of the only values a schema allows, None if they are not listed."""
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    return frozenset(json.dumps(value, sort_keys=True) for value in listed) if isinstance(listed, list) else None


def _types(schema: Mapping[str, Any]) -> set[str]:
    given = schema.get("type")
    found = {given} if isinstance(given, str) else set(given) if isinstance(given, list) else set()
    return found | {"integer"} if "number" in found else found


def _listed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a list of values, those that the schema's type excludes left out."""
    beside = sorted(set(schema) - _NOTES - {"enum", "const", "type"})
    if beside:
        raise ValueError(f"'{beside[0]}' beside a list of values is not enforced")
    values = [schema["const"]] if "const" in schema else schema["enum"]
    if not isinstance(values, list):
        raise ValueError("'enum' must be a list")
    kept = [value for value in values if "type" not in schema or _is_of(value, _types(schema))]
    if not kept:
        raise ValueError("no value of 'enum' has the schema's type")
    notes = {key: value for key, value in schema.items() if key in ("$defs", "definitions")}
    return {**notes, "enum": kept}


def _is_of(value: Any, types: set[str]) -> bool:
    return any(name in types for name in _names(value))


def _names(value: Any) -> Iterator[str]:
    """Yield the JSON types of a value."""
    if value is None:
        yield "null"
    elif isinstance(value, bool):
        yield "boolean"
    elif isinstance(value, (int, float)):
        yield "number"
        if float(value).is_integer():
            yield "integer"
    elif isinstance(value, str):
        yield "string"
    else:
        yield "array" if isinstance(value, list) else "object"
