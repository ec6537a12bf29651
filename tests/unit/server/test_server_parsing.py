from __future__ import annotations

from dataclasses import replace

import pytest

from core.api import CallGrammar, ParserContext, Reasoning, Text, ToolArguments, ToolEnd, ToolParserSpec, ToolStart
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


class ForcedMarks(Marks):
    """The same, and what its calls look like when they are demanded."""

    @staticmethod
    def forced(ctx, tools, *, many):
        return CallGrammar("regex", "!", Marks)


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


BOTH = [(spec(special_tokens=True), Marks), (spec(), Marks)]


@pytest.mark.covers("REASON-01")
def test_one_behind_the_other():
    parser = answer_parser(BOTH, "marks")
    assert run(parser, "(a)b!") == [Reasoning("a"), Text("b"), *CALL]
    assert run(parser, "a)b!", in_reasoning=True) == [Reasoning("a"), Text("b"), *CALL]
    assert parser.special_tokens


def called(index):
    return [replace(event, index=index) for event in CALL]


@pytest.mark.covers("REASON-01", "TOOL-01")
@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("(a!b", [Reasoning("a"), *CALL, Text("b")]),
        ("(a!b)c", [Reasoning("a"), *CALL, Text("b"), Text("c")]),
        ("(a!!", [Reasoning("a"), *CALL, *called(1)]),
        ("(!)b!(c)d!", [*CALL, Text("b"), *called(1), Reasoning("c"), Text("d"), *called(2)]),
        ("b!(c!d", [Text("b"), *CALL, Reasoning("c"), *called(1), Text("d")]),
    ],
)
def test_a_call_ends_the_thinking_of_another_parser(text, events):
    assert run(answer_parser(BOTH, "marks"), text) == events


@pytest.mark.covers("REASON-01", "TOOL-01")
def test_without_tools_nothing_but_its_end_ends_the_thinking():
    found = run(answer_parser(BOTH, "marks"), "(a!)b!", reads=frozenset({"reasoning"}))
    assert found == [Reasoning("a"), Reasoning("!"), Text("b"), Text("!")]


@pytest.mark.covers("REASON-01", "TOOL-01")
def test_a_call_that_a_grammar_demands_comes_behind_the_thinking():
    """The grammar waits for the end of the thinking; a call in front of it was only thought of."""
    parser = answer_parser([(spec(), ForcedMarks), (spec(), Marks)], "marks")
    made = parser.rules.forced(ParserContext(), [], many=True).make(ParserContext())
    assert [*made.feed("(a!)b!"), *made.finish()] == [Reasoning("a"), Reasoning("!"), Text("b"), *CALL]
