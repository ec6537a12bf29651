"""How a family writes calls, as data for grammars that enforce them: structural tags."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core_plugin_parsers.typed import is_text, listed, properties_of, types_of

Format = dict[str, Any]
"""An element of a structural tag."""

_NUMBER = "{number}"


@dataclass(frozen=True)
class Written:
    """The text of calls. `{name}` stands for the tool's name, `{number}` for digits.

    Attributes:
        begin, end: Around the arguments of a call, which are a JSON object.
        argument: Around each argument, where they are written one by one: a text as it is, everything else as JSON.
            `{key}` stands for its name, `{string}` for `true` or `false`, `{type}` for its JSON type.
        opens, closes: Around all calls of a message.
        between: Between two calls; None: there is only one in a message.
        before: What may stand in front of all that.
    """

    begin: str
    end: str
    argument: tuple[str, str] | None = None
    opens: str = ""
    closes: str = ""
    between: str | None = ""
    before: str = ""

    def calls(self, tools: Sequence[Mapping[str, Any]], *, many: bool) -> Format:
        """Return the format of a message that calls one of `tools` (OpenAI's form), or several times."""
        one = _any([self.call(function_of(tool)) for tool in tools])
        more = [_star(_sequence([_text(self.between), one]))] if many and self.between is not None else []
        before = [{"type": "optional", "content": _text(self.before)}] if self.before else []
        return _sequence([*before, _text(self.opens), one, *more, _text(self.closes)])

    def tags(self, tools: Sequence[Mapping[str, Any]], *, many: bool) -> list[Format]:
        """Return a tag for each way to begin a call: its text up to where tools differ, or the whole section."""
        if self.opens and self.closes:
            inner = replace(self, opens="", closes="").calls(tools, many=many)
            return [_tag(self.opens, inner, self.closes)]
        found = []
        for tool in tools:
            form = _sequence([_text(self.opens), self.call(function_of(tool))])
            parts = form["elements"] if form["type"] == "sequence" else [form]
            tail = parts[-1]["value"] if len(parts) > 1 and parts[-1]["type"] == "const_string" else ""
            found.append(_tag(parts[0].get("value", ""), _sequence(parts[1 : -1 if tail else None]), tail))
        return found

    def call(self, function: Mapping[str, Any]) -> Format:
        """Return the format of a call of one tool."""
        name = function["name"]
        begin, end = (text.replace("{name}", _in(self.begin, name)) for text in (self.begin, self.end))
        schema = function.get("parameters") or {"type": "object"}
        head = [part for piece in _around(begin, _NUMBER) for part in _piece(piece)]
        if self.argument is None:
            # Whatever else the schema allows, a call's arguments are an object.
            return _sequence([*head, _json({**schema, "type": "object"}), _text(end)])
        if not properties_of(schema) and schema.get("additionalProperties") is not False and "type" not in schema:
            return _sequence([*head, _until({"type": "any_text"}, end)])
        return _sequence([*head, *self._arguments(schema, self.argument), _text(end)])

    def _arguments(self, schema: Mapping[str, Any], argument: tuple[str, str]) -> Iterator[Format]:
        required = listed(schema.get("required"))
        for key, part in properties_of(schema).items():
            types = types_of(part) if isinstance(part, Mapping) else frozenset[str]()
            said = {
                "{key}": key,
                "{string}": str(is_text(types)).lower(),
                "{type}": next(iter(sorted(types)), "string"),
            }
            opens, closes = (_filled(text, said) for text in argument)
            form = _tag(opens, _value(part, types, schema), closes)
            yield form if key in required else {"type": "optional", "content": form}


GENERAL = Written('{"name": "{name}", "parameters": ', "}", opens="[", closes="]", between=", ")
"""Form that is enforced where a family's own cannot be said by a grammar: a JSON list of calls."""


def function_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the function of one of OpenAI's `tools`."""
    found = tool.get("function", tool)
    return found if isinstance(found, Mapping) else {}


def loosened(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tool of the same name that takes any object."""
    return {"function": {"name": function_of(tool).get("name")}}


def tag_text(form: Format) -> str:
    """Return a structural tag, as JSON."""
    return json.dumps({"type": "structural_tag", "format": form}, ensure_ascii=False)


def _value(schema: Any, types: frozenset[str], root: Mapping[str, Any]) -> Format:
    """Return the format of one argument's value; where it may be a text or something else, any text is allowed."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else None) if is_text(types) else None
    if isinstance(values, list) and values:
        return _any([_text(str(value)) for value in values])
    if not types or "string" in types:
        return {"type": "any_text"}
    shared = {key: root[key] for key in ("$defs", "definitions") if key in root}  # what references point to
    return _json({**shared, **schema})


def _in(around: str, name: str) -> str:
    """Return a name as it stands in `around`: between quotation marks, what needs it is escaped."""
    return json.dumps(name, ensure_ascii=False)[1:-1] if '"{name}"' in around else name


def _filled(text: str, said: Mapping[str, str]) -> str:
    for mark, value in said.items():
        text = text.replace(mark, value)
    return text


def _around(text: str, mark: str) -> list[str]:
    """Return what is outside of each `mark`, and the marks."""
    first, *rest = text.split(mark)
    return [first, *(part for one in rest for part in (mark, one))]


def _piece(text: str) -> list[Format]:
    return [{"type": "regex", "pattern": "[0-9]{1,4}"}] if text == _NUMBER else [_text(text)]


def _text(text: str | None) -> Format:
    return {"type": "const_string", "value": text or ""}


def _json(schema: Any) -> Format:
    return {"type": "json_schema", "json_schema": schema}


def _tag(begin: str, content: Format, end: str) -> Format:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def _until(content: Format, end: str) -> Format:
    return _tag("", content, end)


def _star(content: Format) -> Format:
    return {"type": "star", "content": content}


def _any(forms: list[Format]) -> Format:
    return forms[0] if len(forms) == 1 else {"type": "or", "elements": forms}


def _sequence(forms: Sequence[Format]) -> Format:
    """Return forms one behind the other: neighbouring texts as one, empty ones left out."""
    found: list[Format] = []
    for form in forms:
        parts = form["elements"] if form["type"] == "sequence" else [form]
        for part in parts:
            if part["type"] != "const_string" or (found and found[-1]["type"] != "const_string"):
                found.append(part)
            elif found:
                found[-1] = _text(found[-1]["value"] + part["value"])
            else:
                found.append(part)
    kept = [form for form in found if form != _text("")] or [_text("")]
    return kept[0] if len(kept) == 1 else {"type": "sequence", "elements": kept}
