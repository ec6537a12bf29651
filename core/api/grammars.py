"""Grammars: the form that a request's output must have, and the fields by which users ask for one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from core.api.errors import RequestError
from core.api.structured import MAX_CHOICES

if TYPE_CHECKING:
    import numpy as np

MAX_GRAMMAR_CHARS = 2**20
MAX_DEPTH = 100
WHITESPACE = "x-whitespace"
"""Key of a schema (of `json_object`'s value) that says which white space its JSON may have; see `core.api`."""

JSON_KINDS = frozenset({"json_schema", "json_object"})
SCHEMA_KINDS = JSON_KINDS | {"structural_tag"}


class Thinking(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a model thinks before the part of its output that a grammar describes.

    Attributes:
        end: Text that ends the thinking; what follows it is the grammar's.
        start: Text that begins it, where the model may choose to think or not; without it the grammar begins at once
            unless `open`.
        open: The prompt has begun it.
        budget: Tokens after which it is ended; None leaves that to the model.
    """

    end: str
    start: str = ""
    open: bool = False
    budget: int | None = None


class Grammar(msgspec.Struct, frozen=True, omit_defaults=True):
    """A grammar: the form that the output must have.

    Attributes:
        kind: One of `core.api.GRAMMAR_KINDS`.
        value: JSON text, a pattern, a JSON list of texts, or a grammar, as the kind says.
        thinking: How the model thinks before it; None: the grammar describes the whole output.
        param: The field that a client named it in, for errors.
        additional_properties: Whether objects whose schema names properties and says nothing of further ones may have
            further ones; None: as the engine's option of that name says.

    Raises:
        RequestError: It is too long.
    """

    kind: str
    value: str = ""
    thinking: Thinking | None = None
    param: str = "grammar"
    additional_properties: bool | None = None

    def __post_init__(self) -> None:
        if len(self.value) > MAX_GRAMMAR_CHARS:
            text = f"the grammar has {len(self.value)} characters; at most {MAX_GRAMMAR_CHARS}"
            raise RequestError(text, param=self.param)

    @property
    def key(self) -> tuple[object, ...]:
        """Key under which its compiled form is shared."""
        return self.kind, self.value, self.additional_properties

    def replace(self, **changes: Any) -> Grammar:
        """Return a copy with `changes`."""
        return msgspec.structs.replace(self, **changes)


def last_place(ids: np.ndarray, part: Sequence[int]) -> int:
    """Return where `part` stands in `ids (n,)` for the last time; -1 if it does not."""
    if not part or len(ids) < len(part):
        return -1
    for place in (ids[: len(ids) - len(part) + 1] == part[0]).nonzero()[0][::-1].tolist():
        if ids[place : place + len(part)].tolist() == list(part):
            return int(place)
    return -1


def structured_output(fields: Mapping[str, Any], *, param: str = "structured_outputs") -> Grammar | None:
    """Return the grammar that `fields` ask for; None if they ask for none.

    Args:
        fields: Exactly one of `json` (a schema, or its text), `json_object` (true), `regex`, `choice` (a list of
            texts), `grammar` (EBNF or Lark) and `structural_tag`; beside it `disable_any_whitespace`,
            `whitespace_pattern` and `disable_additional_properties` (see `Grammar.additional_properties`).
        param: What errors call the field.

    Raises:
        RequestError: The fields cannot be used together, or one has a wrong value.
    """
    unknown = sorted(set(fields) - {*_KINDS, *_STYLES, _CLOSED})
    if unknown:
        raise RequestError(f"{param} has no field '{unknown[0]:.40}'; it has {', '.join(_KINDS)}", param=param)
    asked = [name for name in _KINDS if fields.get(name) not in (None, False)]
    styles = {name: fields[name] for name in _STYLES if fields.get(name)}
    if len(asked) != 1:
        if not asked and not styles and not fields.get(_CLOSED):
            return None
        got = f"got {', '.join(asked)}" if asked else "got none"
        raise RequestError(f"{param} needs exactly one of {', '.join(_KINDS)}; {got}", param=param)
    name = asked[0]
    kind, read = _KINDS[name]
    grammar = Grammar(kind, read(fields[name], f"{param}.{name}"), param=f"{param}.{name}")
    grammar = _closed(grammar, fields.get(_CLOSED), f"{param}.{_CLOSED}")
    return _styled(grammar, styles, param) if styles else grammar


def schema_grammar(schema: Any, *, param: str) -> Grammar:
    """Return the grammar of a JSON schema (a mapping, a boolean, or its text). Raises `RequestError`."""
    return Grammar("json_schema", _schema(schema, param), param=param)


def _schema(value: Any, param: str) -> str:
    schema = _parsed(value, param) if isinstance(value, str) else value
    if not isinstance(schema, (Mapping, bool)):
        raise RequestError(f"{param} must be a JSON schema: an object, true or false", param=param)
    return _dumped(schema, param)


def _json_object(value: Any, param: str) -> str:
    if value is not True:
        raise RequestError(f"{param} must be true or false", param=param)
    return ""


def _text(value: Any, param: str) -> str:
    if not isinstance(value, str) or not value:
        raise RequestError(f"{param} must be a text that is not empty", param=param)
    return value


def _choice(value: Any, param: str) -> str:
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(one, str) and one for one in value):
        raise RequestError(f"{param} must be a list of texts that are not empty", param=param)
    if len(value) > MAX_CHOICES:
        raise RequestError(f"{param} has {len(value)} texts; at most {MAX_CHOICES}", param=param)
    return _dumped(list(dict.fromkeys(value)), param)


def _structural_tag(value: Any, param: str) -> str:
    tag = _parsed(value, param) if isinstance(value, str) else value
    if not isinstance(tag, Mapping):
        raise RequestError(f"{param} must be a JSON object", param=param)
    return _dumped(_modern(tag, param), param)


def _modern(tag: Mapping[str, Any], param: str) -> Mapping[str, Any]:
    """Return a tag with `format`; the older form has `structures` (begin, schema, end) and `triggers`."""
    if "format" in tag:
        return {"type": "structural_tag", "format": tag["format"]}
    structures, triggers = tag.get("structures"), tag.get("triggers")
    if not isinstance(structures, (list, tuple)) or not isinstance(triggers, (list, tuple)):
        raise RequestError(f"{param} needs 'format', or 'structures' with 'triggers'", param=param)
    tags = []
    for index, one in enumerate(structures):
        if not isinstance(one, Mapping) or not {"begin", "end"} <= set(one):
            where = f"{param}.structures[{index}]"
            raise RequestError(f"{where} needs 'begin', 'schema' and 'end'", param=where)
        content = {"type": "json_schema", "json_schema": one.get("schema", True)}
        tags.append({"type": "tag", "begin": one["begin"], "content": content, "end": one["end"]})
    return {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": list(triggers), "tags": tags}}


_KINDS: Mapping[str, tuple[str, Callable[[Any, str], str]]] = {
    "json": ("json_schema", _schema),
    "json_object": ("json_object", _json_object),
    "regex": ("regex", _text),
    "choice": ("choice", _choice),
    "grammar": ("grammar", _text),
    "structural_tag": ("structural_tag", _structural_tag),
}
_STYLES = ("disable_any_whitespace", "whitespace_pattern")
_CLOSED = "disable_additional_properties"


def _closed(grammar: Grammar, wanted: Any, param: str) -> Grammar:
    """Return a grammar that says whether the objects of its schemas are closed."""
    if wanted is None:
        return grammar
    if not isinstance(wanted, bool):
        raise RequestError(f"{param} must be true or false", param=param)
    if grammar.kind in SCHEMA_KINDS:
        return grammar.replace(additional_properties=not wanted)
    if wanted:
        raise RequestError(f"{param} is for 'json', 'json_object' and 'structural_tag' only", param=param)
    return grammar


def _styled(grammar: Grammar, styles: Mapping[str, Any], param: str) -> Grammar:
    """Return a grammar of JSON in which the styles are written down."""
    if grammar.kind not in JSON_KINDS:
        where = f"{param}.{next(iter(styles))}"
        raise RequestError(f"{where} is for 'json' and 'json_object' only", param=where)
    schema = json.loads(grammar.value) if grammar.value else {}
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    pattern = styles.get("whitespace_pattern")
    if pattern is not None and not isinstance(pattern, str):
        where = f"{param}.whitespace_pattern"
        raise RequestError(f"{where} must be a pattern", param=where)
    if styles.get("disable_any_whitespace"):
        schema[WHITESPACE] = "none"
    elif pattern:
        schema[WHITESPACE] = pattern
    return grammar.replace(value=json.dumps(schema) if schema else "")


def _parsed(text: str, param: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{param} is not JSON: {error}", param=param) from error


def _dumped(value: Any, param: str) -> str:
    """Return the JSON text of something that is not nested beyond reason."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for one in level
            if isinstance(one, (Mapping, list, tuple))
            for item in (one.values() if isinstance(one, Mapping) else one)
        ]
        if not level:
            break
    else:
        raise RequestError(f"{param} is nested deeper than {MAX_DEPTH} levels", param=param)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RequestError(f"{param} cannot be written as JSON: {error}", param=param) from error
