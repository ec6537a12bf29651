"""Stop texts against a plain search, for every way of cutting the text."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.frontend.stops import StopScanner, StopTexts

ALPHABET = "abc"
texts = st.text(alphabet=ALPHABET, max_size=30)
stop_lists = st.lists(st.text(alphabet=ALPHABET, min_size=1, max_size=6), min_size=1, max_size=5)


def plain(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """First end wins; of those that end there, the longest."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return (text[:end] if include else text[: end - len(longest)]), longest
    return text, None


def scan(text: str, stops: list[str], cuts: list[int], include: bool) -> tuple[str, str | None]:
    scanner = StopScanner(StopTexts(stops), include=include)
    bounds = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    shown = ""
    for start, end in pairwise(bounds):
        safe, found = scanner.scan(text[start:end])
        shown += safe
        if found is not None:
            return shown, found
    return shown + scanner.release(), None


@given(text=texts, stops=stop_lists, cuts=st.lists(st.integers(0, 30), max_size=8), include=st.booleans())
@example(text="aab", stops=["ab", "b"], cuts=[2], include=False)
@example(text="ababc", stops=["abc"], cuts=[4], include=False)
def test_any_cutting_equals_a_plain_search(text, stops, cuts, include):
    assert scan(text, stops, cuts, include) == plain(text, stops, include)


@given(text=texts, stops=stop_lists)
def test_holds_back_exactly_what_could_begin_a_stop(text, stops):
    scanner = StopScanner(StopTexts(stops), include=False)
    shown = ""
    for i, char in enumerate(text):
        safe, found = scanner.scan(char)
        shown += safe
        if found is not None:
            return
        seen = text[: i + 1]
        starts = [k for k in range(len(seen)) if any(len(seen) - k < len(s) and s.startswith(seen[k:]) for s in stops)]
        assert shown == seen[: min(starts, default=len(seen))]


def test_unarmed_matches_are_passed_over_but_prefixes_are_kept():
    scanner = StopScanner(StopTexts(["end", "xy"]), include=False)
    assert scanner.scan("the end x", armed=False) == ("the end ", None)
    assert scanner.scan("y!") == ("", "xy")


def test_with_include_nothing_is_held():
    scanner = StopScanner(StopTexts(["###"]), include=True)
    assert scanner.scan("a##") == ("a##", None)
    assert scanner.scan("#b") == ("#", "###")


@pytest.mark.timeout(20)
def test_work_is_linear_in_the_text():
    scanner = StopScanner(StopTexts(["a" * 1023 + "b", "a" * 500 + "c"]), include=False)
    began = time.process_time()
    shown = sum(len(scanner.scan("a")[0]) for _ in range(100_000))
    assert shown == 100_000 - 1023
    assert time.process_time() - began < 10
