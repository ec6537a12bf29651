"""Work grows with the text and no faster, counted in calls and in characters that are searched; no clock."""

from __future__ import annotations

import sys
from importlib import import_module
from types import FrameType
from typing import Any

import pytest
from core_plugin_parsers.tags import UNDECIDED, Finder

from core.api import ParserContext, ToolParserSpec
from core_testing.conformance import ParserSample

PIECE = 24
SHORT, LONG = 6000, 24000  # the longest tag that is waited for is far shorter
PACKAGES = ("parsers_json", "parsers_xml", "parsers_python", "parsers_reasoning")


def subjects() -> dict[str, tuple[Any, ParserSample]]:
    """Return each family once, with a message that calls or, for reasoning alone, thinks."""
    found: dict[str, tuple[Any, ParserSample]] = {}
    for package in PACKAGES:
        samples = {
            sample.plugin: sample
            for sample in reversed(list(import_module(f"core_plugin_{package}.conformance").samples()))
        }
        for spec in vars(import_module(f"core_plugin_{package}.manifest")).values():
            if isinstance(spec, ToolParserSpec):
                module, _, attribute = spec.impl.partition(":")
                found.setdefault(attribute, (getattr(import_module(module), attribute), samples[spec.name]))
    return found


SUBJECTS = subjects()


def work(family: Any, text: str) -> int:
    """Return how many calls parsing takes, and how many characters are held from one piece to the next."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    parser = family(ParserContext())
    held = 0
    sys.setprofile(count)
    try:
        for at in range(0, len(text), PIECE):
            parser.feed(text[at : at + PIECE])
            held += len(parser._rest)
        parser.finish()
    finally:
        sys.setprofile(None)
    return calls + held


@pytest.mark.covers("TOOL-02")
@pytest.mark.parametrize("name", SUBJECTS)
def test_work_is_linear(name: str) -> None:
    family, sample = SUBJECTS[name]
    half = sample.text[: len(sample.text) * 2 // 3]
    patterns = [("", "<"), ("", sample.text), (half, '{"a": ['), (half, "x, \\"), (half, sample.text[:7])]
    for head, repeated in patterns:
        short, long = (work(family, (head + repeated * size)[:size]) for size in (SHORT, LONG))
        assert long < 5 * short + 500, (head, repeated, short, long)


@pytest.mark.covers("TOOL-02")
def test_what_ends_a_name_is_not_searched_for_in_all_of_a_message() -> None:
    """Else a message of tags that are mentioned, fed at once, would be searched to its end for each of them."""
    finder, text = Finder(("</name>", ">")), "a" * 1000
    for start in (0, 500):
        assert finder.find(text + ">", start, 100) == (start + 100 + len("</name>"), UNDECIDED)
    assert finder.find(text + ">", 950, 50) == (1000, ">")
    assert finder.find(text, 950, 100) == (1000, UNDECIDED)
    assert finder.find(text + "</na", 950, 100) == (1000, UNDECIDED)
