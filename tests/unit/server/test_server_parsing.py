from __future__ import annotations

import pytest

from core.api import ParserContext, Reasoning, Text, ToolArguments, ToolEnd, ToolParserSpec, ToolStart
from core.frontend.answering.parsing import answer_parser


class Marks:
    """`(thought)` and `<name>`, each if it is to be read."""

    def __init__(self, ctx):
        self.reads, self.thinking, self.calls = ctx.reads, ctx.in_reasoning, 0

    def feed(self, text, token_ids=()):
        return [event for letter in text for event in self._letter(letter)]

    def finish(self):
        return []

    def _letter(self, letter):
        if "reasoning" in self.reads and (letter == "(" or (letter == ")" and self.thinking)):
            self.thinking = letter == "("
            return []
        if "tools" in self.reads and letter == "!":
            self.calls += 1
            return [ToolStart(self.calls - 1, "f"), ToolArguments(self.calls - 1, "{}"), ToolEnd(self.calls - 1)]
        return [Reasoning(letter) if self.thinking else Text(letter)]


def spec(**fields):
    return ToolParserSpec(name="marks", impl="nowhere:Marks", api=1, summary="marks", **fields)


def run(parser, text, **context):
    made = parser.make(ParserContext(**context))
    return [*made.feed(text), *made.finish()]


CALL = [ToolStart(0, "f"), ToolArguments(0, "{}"), ToolEnd(0)]


def test_no_parser():
    assert answer_parser([], None) is None


def test_a_tool_parser_alone_reads_all_that_it_can():
    parser = answer_parser([(spec(), Marks)], "marks")
    assert run(parser, "(a)b!") == [Reasoning("a"), Text("b"), *CALL]


@pytest.mark.covers("REASON-01")
def test_a_reasoning_parser_alone_leaves_calls_as_text():
    parser = answer_parser([(spec(), Marks)], None)
    assert run(parser, "(a)b!") == [Reasoning("a"), Text("b"), Text("!")]


@pytest.mark.covers("REASON-01")
def test_one_behind_the_other():
    """The tool parser never sees the thinking, nor reads any of its own; calls inside the thinking are thoughts."""
    parser = answer_parser([(spec(special_tokens=True), Marks), (spec(), Marks)], "marks")
    assert run(parser, "(!)b!") == [Reasoning("!"), Text("b"), *CALL]
    assert run(parser, "a)b!", in_reasoning=True) == [Reasoning("a"), Text("b"), *CALL]
    assert parser.special_tokens
