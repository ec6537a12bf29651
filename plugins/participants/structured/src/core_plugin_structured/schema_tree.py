"""JSON schemas as trees: where further schemas stand in them, and which hold for the same value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

SAYS_MORE = frozenset(
    {
        "additionalProperties",
        "patternProperties",
        "unevaluatedProperties",
        "propertyNames",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "if",
        "not",
        "$dynamicRef",
        "$recursiveRef",
        "enum",
        "const",
    }
)
"""Keywords that speak of further properties, or list whole values. An object with one of them is left as it is."""

_OWN = SAYS_MORE | {"properties", "required", "minProperties", "maxProperties", "items", "prefixItems"}
ALTERNATIVES = ("anyOf", "oneOf")
_CONDITIONS = ("if", "then", "else", "not")
_ONE_SCHEMA = ("items", "additionalItems", "unevaluatedItems", "additionalProperties", "unevaluatedProperties")
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")
_OF_ITEMS = ("items", "prefixItems", "additionalItems", "unevaluatedItems")
_OF_ANY_NAME = ("patternProperties", "additionalProperties", "unevaluatedProperties")

Schema = dict[str, Any]
Branches = dict[tuple[int, str], int]
"""Which alternative was taken at each list of them on the way to a schema."""


def contributors(schema: Schema) -> int:
    """Return how many schemas a value must fit at once: the schema's own words about it, and those beside them."""
    beside = sum(key in schema for key in ("$ref", *ALTERNATIVES))
    return bool(_OWN & schema.keys()) + beside + len(listed(schema.get("allOf")))


def may_be_object(schema: Schema) -> bool:
    """Whether its type lets a value be an object."""
    types = schema.get("type", "object")
    return types == "object" or "object" in listed(types)


def in_place(schema: Schema) -> Iterator[Schema]:
    """Yield a schema and those that its own value is held against too, references left out."""
    yield schema
    for part in inline(schema):
        yield from in_place(part)


def inline(schema: Schema) -> list[Schema]:
    """Return the schemas in `allOf`, `anyOf` and `oneOf`."""
    return [part for key in ("allOf", *ALTERNATIVES) for part in dicts(schema.get(key))]


def conditions(schema: Schema) -> list[Schema]:
    """Return the schemas that hold for its value under conditions, or not at all."""
    dependent = schema.get("dependentSchemas")
    return dicts([*map(schema.get, _CONDITIONS), *(dependent.values() if isinstance(dependent, dict) else ())])


def of_values(schema: Schema) -> Iterator[Schema]:
    """Yield the schemas of a value's items and properties, and definitions."""
    for key in (*_ONE_SCHEMA, "prefixItems", *_NAMED_SCHEMAS):
        yield from _below(schema, key)


def located(schema: Schema, *, any_name: bool) -> Iterator[tuple[str, Schema]]:
    """Yield the schemas of a value's items and properties, each with where it stands.

    Args:
        any_name: Properties are told apart no further, as some schema is for many names.
    """
    for key in _OF_ITEMS:
        yield from (("items", one) for one in _below(schema, key))
    if any_name:
        for key in ("properties", *_OF_ANY_NAME):
            yield from (("properties", one) for one in _below(schema, key))
    else:
        given = schema.get("properties")
        named = given.items() if isinstance(given, dict) else ()
        yield from ((f"properties/{name}", one) for name, one in named if isinstance(one, dict))


def for_any_name(schema: Schema) -> bool:
    """Whether it has schemas for properties that it does not name."""
    return any(isinstance(schema.get(key), dict) for key in _OF_ANY_NAME)


def exclusive(one: Branches, other: Branches) -> bool:
    """Whether two schemas stand in different alternatives, so that they need not hold together."""
    return any(other.get(key, index) != index for key, index in one.items())


def _below(schema: Schema, key: str) -> list[Schema]:
    given = schema.get(key)
    if isinstance(given, dict) and key not in _NAMED_SCHEMAS:
        return [given]
    return dicts(list(given.values()) if isinstance(given, dict) else given)


def texts(value: Any) -> list[str]:
    """Return the texts of a list."""
    return [one for one in listed(value) if isinstance(one, str)]


def listed(value: Any) -> list[Any]:
    """Return a list, or nothing where the schema has something else."""
    return value if isinstance(value, list) else []


def dicts(value: Any) -> list[Schema]:
    """Return the schemas of a list that are not just true or false."""
    return [one for one in listed(value) if isinstance(one, dict)]


def referred(schema: Schema, root: Schema) -> Schema | None:
    """Return the part of a document that one of its schemas refers to."""
    path = schema.get("$ref")
    if not isinstance(path, str) or (path != "#" and not path.startswith("#/")):
        return None
    found: Any = root
    for step in path.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None
