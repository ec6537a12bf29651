"""Forced calls where no tool parser says how the model writes them: plain JSON, made and read here.

A call of any tool is a list `[{"name": ..., "parameters": {...}}]`, a call of a named one its arguments alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from core.api.parsers import CallGrammar, ParseEvent, ParserContext, Text, ToolArguments, ToolEnd, ToolStart
from core.frontend.answering.partial_json import PartialObject

_STRING = r'"(?:[^"\\]|\\.)*"'
_HEAD = re.compile(rf'[\s}}]*[\[,]\s*\{{\s*"name"\s*:\s*({_STRING})\s*,\s*"parameters"\s*:\s*(?=\{{)')
_Form = dict[str, Any]


def plain_calls(tools: Sequence[Mapping[str, Any]], *, many: bool, named: bool) -> CallGrammar:
    """Return the grammar of an answer that calls one of `tools` (OpenAI's form), or several times.

    Args:
        named: There is one tool, which must be called: its name is not written.
    """
    functions = [tool["function"] for tool in tools]
    if named:
        schema = json.dumps(_arguments(functions[0]), ensure_ascii=False)
        return CallGrammar("json_schema", schema, partial(_reader, functions[0]["name"]))
    calls = [_call(function) for function in functions]
    one = calls[0] if len(calls) == 1 else {"type": "or", "elements": calls}
    more = [{"type": "star", "content": _sequence(_text(", "), one)}] if many else []
    tag = {"type": "structural_tag", "format": _sequence(_text("["), one, *more, _text("]"))}
    return CallGrammar("structural_tag", json.dumps(tag, ensure_ascii=False), partial(_reader, None))


class PlainCallsReader:
    """`OutputParser` of such answers.

    Args:
        name: The tool, if the text is its arguments alone.
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name
        self._object: PartialObject | None = None
        self._count = 0
        self._ended = False
        self._text = ""  # between two objects

    def feed(self, text: str, token_ids: Sequence[int] = ()) -> list[ParseEvent]:
        """Take in the next piece of the text and return what is certain by now."""
        events: list[ParseEvent] = []
        self._text += text
        while self._text and not self._ended:
            if self._object is None and not self._begin(events):
                break
            if self._object is not None:
                self._arguments(self._object, events)
        return events

    def finish(self) -> list[ParseEvent]:
        """End the message; a call that was cut off is closed."""
        if self._object is not None:
            closing = self._object.closing()
            return [*([ToolArguments(self._count, closing)] if closing else []), ToolEnd(self._count)]
        # Without a call there is something else than the form, which can only come from a model without the grammar.
        return [] if self._count or not self._text else [Text(self._text)]

    def _begin(self, events: list[ParseEvent]) -> bool:
        """Find where the next object begins; False if it has not begun."""
        if self._name is not None:
            if not self._text.lstrip().startswith("{"):
                return False
            name, end = self._name, 0
        else:
            head = _HEAD.match(self._text)
            if head is None:
                return False
            name, end = json.loads(head[1]), head.end()
        self._text, self._object = self._text[end:], PartialObject()
        events.append(ToolStart(self._count, name))
        return True

    def _arguments(self, read: PartialObject, events: list[ParseEvent]) -> None:
        passed, self._text = read.feed(self._text)
        if passed:
            events.append(ToolArguments(self._count, passed))
        if read.done:
            events.append(ToolEnd(self._count))
            self._object = None
            self._count += 1
            self._ended = self._name is not None


def _reader(name: str | None, ctx: ParserContext) -> PlainCallsReader:
    return PlainCallsReader(name)


def _call(function: Mapping[str, Any]) -> _Form:
    head = f'{{"name": {json.dumps(function["name"], ensure_ascii=False)}, "parameters": '
    return _sequence(_text(head), {"type": "json_schema", "json_schema": _arguments(function)}, _text("}"))


def _arguments(function: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments, which are an object whatever else it allows."""
    return {**(function.get("parameters") or {}), "type": "object"}


def _text(text: str) -> _Form:
    return {"type": "const_string", "value": text}


def _sequence(*forms: _Form) -> _Form:
    return {"type": "sequence", "elements": list(forms)}
