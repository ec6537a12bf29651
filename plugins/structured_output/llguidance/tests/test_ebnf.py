"""EBNF is read in linear time, and means the same without its blanks and comments."""

from __future__ import annotations

import contextlib
import time

import pytest
from core_plugin_llguidance.ebnf import lark_of
from llguidance.gbnf_to_lark import gbnf_to_lark

PLAIN = 'root ::= "a  b" [ \\n\\]#] item+\nitem ::= (\n "#" | "\\"  "\n ) other\nother ::= "x"'


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.replace("\nitem", "\n\n \t\r\n\n# item ::= root\n\nitem"),
        PLAIN.replace("(\n", "(  # opens\n\n"),
        "\n\n" + PLAIN + "\n\n\n",
    ],
)
def test_blanks_and_comments_mean_nothing(text):
    assert lark_of(text).split() == gbnf_to_lark(PLAIN).split()


@pytest.mark.parametrize(
    ("text", "lark"),
    [
        ('start: "::="', True),
        ('\n  start : "::="', True),
        ('%llguidance {}\nstart: "::="', True),
        ('root ::= begin\nbegin ::= "x"', False),
        ('root ::= "start: "', False),
    ],
)
def test_the_dialect_is_told_apart(text, lark):
    assert (lark_of(text) == text) is lark


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize("piece", ["\n", " ", "\n\t", "\n#", "#", "\r\n \n", "start ", '""', "[]", '"\\', "|", "a-"])
def test_the_time_grows_with_the_length_alone(piece):
    def seconds(length):
        began = time.process_time()
        with contextlib.suppress(ValueError, RecursionError):
            lark_of('root ::= "a"' + piece * (length // len(piece)))
        return time.process_time() - began

    short = min(seconds(50_000) for _ in range(2))
    assert min(seconds(400_000) for _ in range(2)) < 24 * short + 0.1  # quadratic work would take 64 times as long
