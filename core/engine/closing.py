"""Objects of JSON schemas that name their properties and say nothing of further ones: closed, unless that is unwanted.

JSON Schema leaves such an object open. A model then goes on inventing properties, a small one up to its limit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from core.api.structured import grammar_json
from core.engine.grammars import MAX_GRAMMAR_CHARS, Grammar

_SAYS_MORE = frozenset(
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

_ABOUT_OBJECTS = _SAYS_MORE | {"properties", "required", "minProperties", "maxProperties"}
_ALTERNATIVES = ("anyOf", "oneOf")
_CONDITIONS = ("if", "then", "else", "not")
_ONE_SCHEMA = ("items", "additionalItems", "unevaluatedItems", "additionalProperties", "unevaluatedProperties")
_LISTED_SCHEMAS = ("items", "prefixItems")
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")

Schema = dict[str, Any]


def compiled_value(grammar: Grammar, *, additional_properties: bool) -> str:
    """Return the value of a grammar as backends compile it: the objects of its schemas are closed.

    Args:
        additional_properties: Leave them as open as they are, where the grammar does not say itself.

    Raises:
        ValueError: It is not JSON, or so entangled that it cannot be followed.
    """
    given = grammar.additional_properties
    close = _CLOSE.get(grammar.kind)
    if close is None or (additional_properties if given is None else given):
        return grammar.value
    try:
        return json.dumps(close(grammar_json(grammar.value)), ensure_ascii=False)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def close_objects(schema: Any) -> Any:
    """Close the objects of a schema, in place, and return it.

    An object that is composed (`allOf`, or `$ref`, `anyOf` and `oneOf` beside properties) is closed as a whole: it may
    have what any of its parts names. A definition that is such a part stays open, and is closed where it is used.

    Raises:
        ValueError: Its references and compositions are too entangled.
    """
    if isinstance(schema, dict):
        _Document(schema).close()
    return schema


@dataclass(slots=True)
class _Named:
    """What is known of an object's properties: their names, whether they are described at all, and how many it needs."""

    names: dict[str, None] = field(default_factory=dict)
    described: bool = False
    least: int = 0

    def add(self, schema: Schema) -> int:
        """Add what a schema itself names, and return how many names it gave."""
        given, least = schema.get("properties"), schema.get("minProperties")
        names = [*(given if isinstance(given, dict) else ()), *_texts(schema.get("required"))]
        self.names.update(dict.fromkeys(names))
        self.described |= isinstance(given, dict)
        self.least = max(self.least, least if isinstance(least, int) else 0)
        return len(names)

    def copy(self) -> _Named:
        """Return a copy, which can be added to."""
        return _Named(dict(self.names), self.described, self.least)


class _Document:
    """A schema with all that it holds and refers to; changed in place."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._parts: set[int] = set()  # what a composition is made of, by identity: none of it is closed by itself
        self._left = MAX_GRAMMAR_CHARS  # of names to write and steps to take, so that no schema keeps a thread busy

    def close(self) -> None:
        """Close every object that can be."""
        heads = self._heads()
        for head in heads:
            self._mark(head, composed=False)
        for head in heads:
            if id(head) not in self._parts:
                self._close(head, _Named())

    def _heads(self) -> list[Schema]:
        """Return the schemas that a value is held against, and not only together with others."""
        found: dict[int, Schema] = {}
        queue = [self._root]
        while queue:
            head = queue.pop()
            if id(head) in found:
                continue
            found[id(head)] = head
            for schema in _in_place(head):
                queue += _of_values(schema)
                target = self._target(schema)
                if target is not None:
                    queue.append(target)
        return list(found.values())

    def _mark(self, schema: Schema, *, composed: bool) -> None:
        """Note the parts of compositions; `composed` says that the schema is one."""
        composed = composed or _contributors(schema) > 1
        for part in _conditions(schema):
            self._part(part, composed=True)
        for part in _inline(schema):
            self._part(part, composed=composed)
        target = self._target(schema)
        if composed and target is not None:
            self._part(target, composed=True)

    def _part(self, schema: Schema, *, composed: bool) -> None:
        if composed and id(schema) in self._parts:
            return
        if composed:
            self._parts.add(id(schema))
        self._mark(schema, composed=composed)

    def _close(self, schema: Schema, outer: _Named) -> None:
        """Close the object of a schema, or of each of its alternatives.

        Args:
            outer: What schemas around name of the same object.
        """
        if _SAYS_MORE & schema.keys() or not _may_be_object(schema):
            return
        lists = [_dicts(schema.get(key)) for key in _ALTERNATIVES if key in schema]
        wrapped = _dicts(schema.get("allOf"))
        if _contributors(schema) == 1 and not lists:
            if wrapped:
                return self._close(wrapped[0], outer)
            if "$ref" in schema and id(self._target(schema)) not in self._parts:
                return None  # what it refers to is closed by itself
        named, seen = outer.copy(), {id(schema)}
        named.add(schema)
        around = [*wrapped, *(part for parts in lists for part in parts if len(lists) > 1)]
        if not all(self._gather(part, named, seen) for part in around) or not self._gather_target(schema, named, seen):
            return None
        if len(lists) == 1:
            for branch in lists[0]:
                self._spend(len(named.names))
                self._close(branch, named)
        elif named.described and named.least <= len(named.names):
            self._write(schema, named)
        return None

    def _gather(self, schema: Schema, named: _Named, seen: set[int]) -> bool:
        """Add what a part and its own parts name; False if one of them says more, or cannot be found."""
        if id(schema) in seen:
            return True
        seen.add(id(schema))
        self._spend(1 + named.add(schema))
        if _SAYS_MORE & schema.keys():
            return False
        parts = all(self._gather(part, named, seen) for part in _inline(schema))
        return parts and self._gather_target(schema, named, seen)

    def _gather_target(self, schema: Schema, named: _Named, seen: set[int]) -> bool:
        if "$ref" not in schema:
            return True
        target = self._target(schema)
        return target is not None and self._gather(target, named, seen)

    def _write(self, schema: Schema, named: _Named) -> None:
        own = schema.get("properties") or {}
        self._spend(sum(len(name) for name in named.names if name not in own))
        schema["properties"] = {name: own.get(name, True) for name in named.names}
        schema["additionalProperties"] = False

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise ValueError("its compositions and references are too many to be followed")

    def _target(self, schema: Schema) -> Schema | None:
        """Return the part of this document that a schema refers to."""
        path = schema.get("$ref")
        if not isinstance(path, str) or (path != "#" and not path.startswith("#/")):
            return None
        found: Any = self._root
        for step in path.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                found = found.get(name) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else None


def _contributors(schema: Schema) -> int:
    """Return how many schemas a value must fit at once: the schema's own words about objects, and those beside them."""
    beside = sum(key in schema for key in ("$ref", *_ALTERNATIVES))
    return bool(_ABOUT_OBJECTS & schema.keys()) + beside + len(_list(schema.get("allOf")))


def _may_be_object(schema: Schema) -> bool:
    types = schema.get("type", "object")
    return types == "object" or "object" in _list(types)


def _in_place(schema: Schema) -> Iterator[Schema]:
    """Yield a schema and those that its own value is held against too, references left out."""
    yield schema
    for part in _inline(schema):
        yield from _in_place(part)


def _inline(schema: Schema) -> list[Schema]:
    return [part for key in ("allOf", *_ALTERNATIVES) for part in _dicts(schema.get(key))]


def _conditions(schema: Schema) -> list[Schema]:
    dependent = schema.get("dependentSchemas")
    return _dicts([*map(schema.get, _CONDITIONS), *(dependent.values() if isinstance(dependent, dict) else ())])


def _of_values(schema: Schema) -> Iterator[Schema]:
    """Yield the schemas of a value's items and properties, and definitions."""
    for key in _ONE_SCHEMA:
        if isinstance(schema.get(key), dict):
            yield schema[key]
    for key in _LISTED_SCHEMAS:
        yield from _dicts(schema.get(key))
    for key in _NAMED_SCHEMAS:
        given = schema.get(key)
        yield from _dicts(list(given.values()) if isinstance(given, dict) else ())


def _texts(value: Any) -> list[str]:
    return [one for one in _list(value) if isinstance(one, str)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any) -> list[Schema]:
    return [one for one in _list(value) if isinstance(one, dict)]


def _close_tag(value: Any) -> Any:
    """Close the objects of every schema in a structural tag."""
    if isinstance(value, list):
        return [_close_tag(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    return {key: close_objects(one) if key == "json_schema" else _close_tag(one) for key, one in value.items()}


_CLOSE = {"json_schema": close_objects, "structural_tag": _close_tag}
