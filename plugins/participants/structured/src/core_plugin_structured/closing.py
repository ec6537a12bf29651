"""Objects of JSON schemas that name their properties and say nothing of further ones: closed, unless that is unwanted.

JSON Schema leaves such an object open. A model then goes on inventing properties, a small one up to its limit.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.api.grammars import MAX_GRAMMAR_CHARS, Grammar
from core.api.structured import grammar_json
from core_plugin_structured.schema_tree import (
    ALTERNATIVES,
    SAYS_MORE,
    Branches,
    Schema,
    conditions,
    contributors,
    dicts,
    exclusive,
    for_any_name,
    in_place,
    inline,
    located,
    may_be_object,
    of_values,
    referred,
    texts,
)

_PER_SCHEMA = 32
"""Cost of looking at a schema, where that of a character that is written is 1: some ten microseconds."""


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
    have what any of its parts names. A definition that is such a part stays open, and is closed where it is used. What
    several parts describe, a property with objects in it for example, stays open.

    Raises:
        ValueError: Its references and compositions are too entangled.
    """
    if isinstance(schema, dict):
        _Document(schema).close()
    return schema


@dataclass(slots=True)
class _Named:
    """Known properties of an object.

    Attributes:
        names: Those that are described or required, in order.
        described: Whether a schema describes any, or says that there are none.
        least: How many it must have.
    """

    names: dict[str, None] = field(default_factory=dict)
    described: bool = False
    least: int = 0

    def add(self, schema: Schema) -> int:
        """Add what a schema itself names, and return how many names it gave."""
        given, least = schema.get("properties"), schema.get("minProperties")
        names = [*(given if isinstance(given, dict) else ()), *texts(schema.get("required"))]
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
        self._met: set[frozenset[int]] = set()  # schemas that hold together, by identity
        self._left = MAX_GRAMMAR_CHARS  # of names to write and schemas to look at: none keeps a thread busy for long

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
            for schema in in_place(head):
                queue += of_values(schema)
                target = self._referred(schema)
                if target is not None:
                    queue.append(target)
        return list(found.values())

    def _mark(self, schema: Schema, *, composed: bool) -> None:
        """Note the parts of compositions; `composed` says that the schema is one."""
        if not composed and (contributors(schema) > 1 or for_any_name(schema)):
            self._overlap([schema])
        composed = composed or contributors(schema) > 1
        for part in conditions(schema):
            self._part(part, composed=True)
        for part in inline(schema):
            self._part(part, composed=composed)
        target = self._referred(schema)
        if composed and target is not None:
            self._part(target, composed=True)

    def _part(self, schema: Schema, *, composed: bool) -> None:
        if composed and id(schema) in self._parts:
            return
        if composed:
            self._parts.add(id(schema))
        self._mark(schema, composed=composed)

    def _overlap(self, group: Sequence[Schema]) -> None:
        """Note the schemas of properties and items that hold for one value together, given schemas that do."""
        met = frozenset(map(id, group))
        if met in self._met:
            return
        self._met.add(met)
        applied = self._applied(group)
        any_name = any(for_any_name(schema) for schema, _ in applied)
        places: dict[str, list[tuple[Schema, Branches]]] = {}
        for schema, branches in applied:
            for where, value in located(schema, any_name=any_name):
                places.setdefault(where, []).append((value, branches))
        for values in places.values():
            for value, branches in values if len(values) > 1 else ():
                self._spend(len(values))
                together = [other for other, theirs in values if not exclusive(branches, theirs)]
                if len(together) > 1:
                    self._part(value, composed=True)
                    self._overlap(together)

    def _applied(self, group: Sequence[Schema]) -> list[tuple[Schema, Branches]]:
        """Return all schemas that hold for a value for which those of a group do."""
        found: dict[int, tuple[Schema, Branches]] = {}
        queue: deque[tuple[Schema | None, Branches]] = deque((schema, {}) for schema in group)
        while queue:
            schema, branches = queue.popleft()
            if schema is None or id(schema) in found:
                continue
            self._spend(_PER_SCHEMA + len(str(schema.get("$ref"))))
            found[id(schema)] = schema, branches
            queue += [(part, branches) for part in (*dicts(schema.get("allOf")), self._referred(schema))]
            for key in ALTERNATIVES:
                parts = enumerate(dicts(schema.get(key)))
                queue += [(part, {**branches, (id(schema), key): index}) for index, part in parts]
        return list(found.values())

    def _close(self, schema: Schema, outer: _Named) -> None:
        """Close the object of a schema, or of each of its alternatives.

        Args:
            outer: What schemas around name of the same object.
        """
        if SAYS_MORE & schema.keys() or not may_be_object(schema):
            return
        lists = [dicts(schema.get(key)) for key in ALTERNATIVES if key in schema]
        wrapped = dicts(schema.get("allOf"))
        if contributors(schema) == 1 and (wrapped or self._closed_there(schema)):
            for part in wrapped:
                self._close(part, outer)
            return
        together = [*wrapped, *(part for parts in lists for part in parts if len(lists) > 1)]
        named = self._named(schema, outer, together)
        if named is None:
            return
        if len(lists) == 1:
            for branch in lists[0]:
                self._spend(len(named.names))
                self._close(branch, named)
        elif named.described and named.least <= len(named.names):
            self._write(schema, named)

    def _closed_there(self, schema: Schema) -> bool:
        """Whether a schema is but a reference to one that is closed by itself."""
        return "$ref" in schema and id(self._referred(schema)) not in self._parts

    def _named(self, schema: Schema, outer: _Named, parts: list[Schema]) -> _Named | None:
        """Return what an object's schemas name together; None if one of them says more, or cannot be found."""
        named, seen = outer.copy(), {id(schema)}
        named.add(schema)
        known = all(self._gather(part, named, seen) for part in parts) and self._gather_target(schema, named, seen)
        return named if known else None

    def _gather(self, schema: Schema, named: _Named, seen: set[int]) -> bool:
        """Add what a part and its own parts name; False if one of them says more, or cannot be found."""
        if id(schema) in seen:
            return True
        seen.add(id(schema))
        self._spend(_PER_SCHEMA + named.add(schema))
        if SAYS_MORE & schema.keys():
            return False
        parts = all(self._gather(part, named, seen) for part in inline(schema))
        return parts and self._gather_target(schema, named, seen)

    def _gather_target(self, schema: Schema, named: _Named, seen: set[int]) -> bool:
        if "$ref" not in schema:
            return True
        self._spend(len(str(schema["$ref"])))
        target = self._referred(schema)
        return target is not None and self._gather(target, named, seen)

    def _write(self, schema: Schema, named: _Named) -> None:
        given = schema.get("properties")
        own = given if isinstance(given, dict) else {}
        self._spend(sum(len(name) for name in named.names if name not in own))
        schema["properties"] = {name: own.get(name, True) for name in named.names}
        schema["additionalProperties"] = False

    def _referred(self, schema: Schema) -> Schema | None:
        return referred(schema, self._root)

    def _spend(self, cost: int) -> None:
        self._left -= cost
        if self._left < 0:
            raise ValueError("its compositions and references are too many to be followed")


def _close_tag(value: Any) -> Any:
    """Close the objects of every schema in a structural tag."""
    if isinstance(value, list):
        return [_close_tag(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    return {key: close_objects(one) if key == "json_schema" else _close_tag(one) for key, one in value.items()}


_CLOSE = {"json_schema": close_objects, "structural_tag": _close_tag}
