"""Grammars that are short to write and hard to compile: what a request may bring to hurt the others."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping

MOST_BYTES = 2**20
"""Size up to which core hands a grammar to a backend; none here is larger."""


def _references(depth: int, word: str) -> str:
    """Return a schema of which each definition is two of the next: what it means doubles with every line."""
    both = {f"d{place}": {word: [{"$ref": f"#/$defs/d{place + 1}"}] * 2} for place in range(depth)}
    last = {f"d{depth}": {"type": "string", "pattern": "^a+$"}}
    return json.dumps({"$ref": "#/$defs/d0", "$defs": {**both, **last}})


def _rules(depth: int, sign: str) -> str:
    """Return rules of EBNF (`::=`) or Lark (`:`) of which each is the next one twice."""
    first = "root" if sign == "::=" else "start"
    middle = [f"a{place} {sign} a{place + 1} a{place + 1}" for place in range(depth)]
    return "\n".join([f"{first} {sign} a0", *middle, f'a{depth} {sign} "x"'])


def _literals(count: int, between: str) -> str:
    return "root ::= " + between.join(f'"w{number:06}"' for number in range(count))


def _tag(form: object) -> str:
    return json.dumps({"type": "structural_tag", "format": form})


_HARD_SCHEMA = {"type": "json_schema", "json_schema": json.loads(_references(24, "allOf"))}

HOSTILE: Mapping[str, Mapping[str, str]] = types.MappingProxyType(
    {
        "regex": {
            "nested stars": "(a+)+b",
            "nested repeats": "((x{1,99}){1,99}){1,99}",
            "a big repeat": "[a-z]{1,1000000}",
            "deep nesting": "(" * 3000 + "a" + ")" * 3000,
            "many optional parts": "a?" * 200 + "a" * 200,
            "a class, repeated": "[^a]{9999}",
            "a huge alternation": "|".join(f"w{number:06}" for number in range(8000)),
            "a long pattern": "ab?" * 10_000,
            "exponentially many states": "(a|b)*a(a|b){20}",
            "a flood of white space": "a" + " *" * 10_000 + "b",
        },
        "choice": {
            "many choices": json.dumps([f"choice {number}" for number in range(5000)]),
            "a long choice": json.dumps(["x" * 50_000]),
            "choices that begin alike": json.dumps(["a" * length for length in range(1, 300)]),
        },
        "json_schema": {
            "deep nesting": '{"items":' * 400 + "{}" + "}" * 400,
            "nothing but itself": '{"$ref": "#"}',
            "twice itself": '{"allOf": [{"$ref": "#"}, {"$ref": "#"}]}',
            "exponential references": _references(24, "allOf"),
            "exponential references to choose": _references(24, "anyOf"),
            "nested stars": '{"type": "string", "pattern": "(a+)+b"}',
            "a huge enumeration": json.dumps({"enum": list(range(5000))}),
            "a big repeat": json.dumps({"type": "array", "minItems": 10**9}),
            "a long text": json.dumps({"type": "string", "minLength": 1, "maxLength": 10**7}),
            "patterns at once": json.dumps({"allOf": [{"pattern": f"a.*b{number}.*"} for number in range(12)]}),
        },
        "grammar": {
            "nothing but itself": "root ::= root",
            "deep nesting": "root ::= " + "(" * 3000,
            "ambiguous parts": "root ::= " + '("a" | "a") ' * 200,
            "exponential rules": _rules(26, "::="),
            "exponential rules of Lark": _rules(26, ":"),
            "many literals in turn": _literals(40_000, " "),
            "many literals to choose": _literals(10_000, " | "),
            "a long literal": f'root ::= "{"x" * 50_000}"',
            "a big repeat": 'root ::= "a"{1,100000}',
            "a flood of line breaks": 'root ::= "a"' + "\n" * 900_000,
            "a flood of comments": 'root ::= "a"' + "\n#" * 100_000,
        },
        "structural_tag": {
            "deep nesting": "[" * 5000,
            "nothing": "{}",
            "exponential references": _tag({"type": "sequence", "elements": [_HARD_SCHEMA] * 3}),
            "many tags": _tag(
                {
                    "type": "triggered_tags",
                    "triggers": ["<"],
                    "tags": [
                        {"type": "tag", "begin": f"<{number}>", "content": {"type": "any_text"}, "end": "</"}
                        for number in range(1500)
                    ],
                }
            ),
        },
        "json_object": {"no JSON": "x" * 10_000},
    }
)
"""Kind -> name -> a grammar that a careless compiler never finishes, or for which it takes all memory."""
