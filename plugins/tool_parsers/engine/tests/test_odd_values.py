"""Values that models write in another way than their format, and what becomes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from core_plugin_parsers import BraceCalls
from core_plugin_parsers.python_calls import literal_call
from core_plugin_parsers.reader import CallSink
from core_plugin_parsers.typed import said_types, types_of

from core.api import ParserContext, ToolArguments


@pytest.mark.covers("TOOL-01")
@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('f(a="x\ny\r\n")', {"a": "x\ny\r\n"}),
        ('f(a="07\n08", b=\'it"s\\n\')', {"a": "07\n08", "b": 'it"s\n'}),
        ('f(a=[007.5, -08, 0, 100, 1.05, 0x1f, 1e07])', {"a": [7.5, -8, 0, 100, 1.05, 31, 1e7]}),
        ('f(a="""x\n"q" 07""", b=05)', {"a": 'x\n"q" 07', "b": 5}),
        ('f(a="x\\\ny\n")', {"a": "xy\n"}),
        ("f(a=1, b)", None),
        ('f(a="x\n', None),
        ('f(a="""x"y)', None),
        ('f(a="x\n" + g())', None),
    ],
)  # fmt: skip
def test_python_literals_that_python_refuses(text: str, arguments: dict[str, Any] | None) -> None:
    assert literal_call(text) == (arguments and ("f", json.dumps(arguments)))


@pytest.mark.covers("TOOL-02")
def test_repairing_a_call_takes_linear_work() -> None:
    """Quotes without an end are looked for once; if they were looked for at every place, this would not end."""
    for piece in ('"""\\"', '""\\"', "'\"", '0"""'):
        assert literal_call(f"f(a={piece * 100_000}") is None


@pytest.mark.covers("TOOL-01")
@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("{a: New York, 1: -2.5, b: 07}", {"a": "New York", "1": -2.5, "b": "07"}),
        ("{true:true,null: null ,x:nul}", {"true": True, "null": None, "x": "nul"}),
        ("{a:[1 , {b:[]}],'c':{}}", {"a": [1, {"b": []}], "'c'": {}}),
        ("{a:1}} rest", {"a": 1}),
        ("{a:1,,}", {"a": 1}),
        ("{a<c>", {}),
    ],
)
def test_bare_words_between_braces(text: str, arguments: dict[str, Any]) -> None:
    sink = CallSink(ParserContext())
    reader = BraceCalls("<c>", "<q>").reader(sink)
    reader.feed(f"call:f{text}", 0)
    reader.finish()
    written = "".join(event.json for event in sink.take() if isinstance(event, ToolArguments))
    assert json.loads(written) == arguments


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "float"}, {"number"}),
        ({"type": ["int", "none"]}, {"integer", "null"}),
        ({"type": "STRING"}, {"string"}),
        ({"anyOf": [{"type": "dict"}, {"type": "list"}]}, {"object", "array"}),
        ({"type": "bool"}, {"boolean"}),
    ],
)
def test_other_names_of_types(schema: dict[str, Any], types: set[str]) -> None:
    assert types_of(schema) == types


@pytest.mark.parametrize(
    ("types", "is_string", "left"),
    [
        ((), True, {"string"}),
        ((), False, ()),
        (("integer",), True, {"integer"}),
        (("string",), False, {"string"}),
        (("string", "integer"), True, {"string"}),
        (("string", "integer"), False, {"integer"}),
        (("string", "integer"), None, {"string", "integer"}),
    ],
)
def test_the_message_decides_what_the_schema_leaves_open(
    types: set[str], is_string: bool | None, left: set[str]
) -> None:
    assert said_types(frozenset(types), is_string) == frozenset(left)
