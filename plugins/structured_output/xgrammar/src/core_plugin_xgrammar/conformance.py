"""Grammars for the conformance kit."""

from __future__ import annotations

import json
from collections.abc import Iterator

from core.testing.conformance import GrammarSample

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


def samples() -> Iterator[GrammarSample]:
    """Yield a grammar in both dialects, and structural tags."""
    yield GrammarSample(
        "EBNF",
        "grammar",
        'root ::= "a" digit+ ("," digit+)*\ndigit ::= [0-9]',
        sentences=("a1", "a12,3"),
        others=("a", "1", "a1,", ""),
        bad=("root ::= (", "root ::= nowhere"),
    )
    yield GrammarSample(
        "Lark",
        "grammar",
        'start: "a" NUMBER ("," NUMBER)*\nNUMBER: /[0-9]+/',
        sentences=("a1", "a12,3"),
        others=("a", "1", "a1,", ""),
        bad=("start: (", "start: nowhere"),
    )
    yield _tags(
        "calls and nothing else",
        {"type": "tags_with_separator", "tags": [_CALL], "separator": "\n", "at_least_one": True},
        (_TEXT, f"{_TEXT}\n{_TEXT}"),
        ("", "x", _TEXT[:-1], _TEXT + "x", _TEXT.replace("5", '"5"')),
    )
    yield _tags(
        "calls in a text",
        {"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": [_CALL]},
        ("", "Hello.", _TEXT, f"Well: {_TEXT} and {_TEXT}"),
        ("a <tool_call>", "<tool_call>x", f"a{_TEXT[:-1]}", _TEXT.replace('"f"', '"g"')),
    )
    yield _tags(
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
    )
    yield _tags(
        "parts",
        {
            "type": "sequence",
            "elements": [
                {"type": "const_string", "value": "<a>"},
                {
                    "type": "or",
                    "elements": [{"type": "regex", "pattern": "[0-9]+"}, {"type": "const_string", "value": "x"}],
                },
                {"type": "optional", "content": {"type": "const_string", "value": "!"}},
            ],
        },
        ("<a>12", "<a>x!"),
        ("<a>", "12", "<a>1!!", ""),
    )


def _tags(name: str, form: object, sentences: tuple[str, ...], others: tuple[str, ...]) -> GrammarSample:
    value = json.dumps({"type": "structural_tag", "format": form})
    bad = ("[]", "{}", '{"type": "structural_tag", "format": {"type": "nothing"}}')
    return GrammarSample(name, "structural_tag", value, sentences, others, bad)
