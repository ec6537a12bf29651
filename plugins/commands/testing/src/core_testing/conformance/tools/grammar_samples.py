"""Samples of grammars for the kinds that are more than a value: EBNF, Lark and structural tags."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core_testing.conformance.samples import GrammarSample

EBNF = GrammarSample(
    "EBNF",
    "grammar",
    'root ::= "a" digit+ ("," digit+)*\ndigit ::= [0-9]',
    sentences=("a1", "a12,3"),
    others=("a", "1", "a1,", ""),
    bad=("root ::= (", "root ::= nowhere"),
)
"""For backends that read EBNF."""

LARK = GrammarSample(
    "Lark",
    "grammar",
    'start: "a" NUMBER ("," NUMBER)*\nNUMBER: /[0-9]+/',
    sentences=("a1", "a12,3"),
    others=("a", "1", "a1,", ""),
    bad=("start: (", "start: nowhere"),
)
"""For backends that read Lark."""


@dataclass(frozen=True, slots=True)
class ObjectSample:
    """A schema of objects, texts that it takes, and texts with a property that it does not take.

    Attributes:
        open: The engine leaves objects open that say nothing of further properties.
        plain: Every backend can compile it; others may be refused.
    """

    schema: Mapping[str, Any]
    takes: Sequence[str]
    refuses: Sequence[str] = ()
    open: bool = False
    plain: bool = True


_NUMBER = {"type": "integer"}
_ONE = {"type": "object", "properties": {"a": _NUMBER}, "required": ["a"]}
_IN_ONE, _ALONE, _BESIDE, _ANOTHER = '{"o": {"a": 5}}', '{"a": 5}', '{"a": 5, "b": 5}', '{"b": 5}'

OBJECTS = (
    ObjectSample(_ONE, (_ALONE,), (_BESIDE, _ANOTHER)),
    ObjectSample(_ONE, (_ALONE, _BESIDE), (_ANOTHER,), open=True),
    ObjectSample({**_ONE, "additionalProperties": True}, (_ALONE, _BESIDE), (_ANOTHER,)),
    ObjectSample({**_ONE, "additionalProperties": False}, (_ALONE,), (_BESIDE, _ANOTHER), open=True),
    ObjectSample({"type": "object", "properties": {}}, ("{}",), (_ALONE,)),
    ObjectSample({"type": "object"}, ("{}", _ALONE, _BESIDE)),
    ObjectSample(
        {"type": "object", "properties": {"o": _ONE}, "required": ["o"]},
        (_IN_ONE,),
        ('{"o": {"a": 5, "b": 5}}', '{"o": {"a": 5}, "b": 5}'),
    ),
    ObjectSample({"$ref": "#/$defs/One", "$defs": {"One": _ONE}}, (_ALONE,), (_BESIDE, _ANOTHER), plain=False),
    ObjectSample({"anyOf": [_ONE, {"type": "null"}]}, (_ALONE, "null"), (_BESIDE, _ANOTHER), plain=False),
    ObjectSample(
        {"allOf": [_ONE, {"type": "object", "properties": {"b": _NUMBER}}]},
        (_ALONE, _BESIDE),
        ('{"a": 5, "c": 5}', _ANOTHER),
        plain=False,
    ),
)
"""Schemas as requests bring them."""

_CALL = {
    "type": "tag",
    "begin": '<tool_call>{"name": "f", "arguments": ',
    "content": {
        "type": "json_schema",
        "json_schema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
    "end": "}</tool_call>",
}
_TEXT = '<tool_call>{"name": "f", "arguments": {"a": 5}}</tool_call>'


def _text(text: str) -> object:
    return {"type": "const_string", "value": text}


def _tags(name: str, form: object, sentences: tuple[str, ...], others: tuple[str, ...]) -> GrammarSample:
    value = json.dumps({"type": "structural_tag", "format": form})
    bad = ("[]", "{}", '{"type": "structural_tag", "format": {"type": "nothing"}}')
    return GrammarSample(name, "structural_tag", value, sentences, others, bad)


TAGS = (
    _tags(
        "calls and nothing else",
        {"type": "tags_with_separator", "tags": [_CALL], "separator": "\n", "at_least_one": True},
        (_TEXT, f"{_TEXT}\n{_TEXT}"),
        ("", "x", _TEXT[:-1], _TEXT + "x", _TEXT.replace("5", '"5"')),
    ),
    _tags(
        "calls in a text",
        {"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": [_CALL]},
        ("", "Hello.", _TEXT, f"Well: {_TEXT} and {_TEXT}"),
        ("a <tool_call>", "<tool_call>x", f"a{_TEXT[:-1]}", _TEXT.replace('"f"', '"g"')),
    ),
    _tags(
        "one call at once",
        {
            "type": "triggered_tags",
            "triggers": ["<tool_call>"],
            "tags": [_CALL],
            "at_least_one": True,
            "stop_after_first": True,
        },
        (_TEXT,),
        ("", "Hello.", f"{_TEXT} x", f"x{_TEXT}"),
    ),
    _tags(
        "parts",
        {
            "type": "sequence",
            "elements": [
                _text("<a>"),
                {"type": "or", "elements": [{"type": "regex", "pattern": "[0-9]+"}, _text("x")]},
                {"type": "optional", "content": _text("!")},
            ],
        },
        ("<a>12", "<a>x!"),
        ("<a>", "12", "<a>1!!", ""),
    ),
    _tags(
        "a list",
        {
            "type": "sequence",
            "elements": [
                _text("["),
                _CALL,
                {"type": "star", "content": {"type": "sequence", "elements": [_text(", "), _CALL]}},
                _text("]"),
            ],
        },
        (f"[{_TEXT}]", f"[{_TEXT}, {_TEXT}, {_TEXT}]"),
        ("[]", f"[{_TEXT}", f"[{_TEXT}, ]", f"[{_TEXT}{_TEXT}]"),
    ),
)
"""Core's own form: demanded calls are made of it."""
