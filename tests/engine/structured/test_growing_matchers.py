"""Grammars whose matchers grow with the text: ended by name before they take much time or memory of the engine."""

from __future__ import annotations

import random
import time

import pytest
from core_plugin_structured.compiling.memory import footprint
from core_plugin_structured.timed import FIRST_SECONDS, TOKEN_SECONDS, TimedMatcher

MIB = 2**20
HOSTILE = {
    "every way to cut it": ("grammar", 'root ::= root root | "a"'),
    "empty parts": ("grammar", 'root ::= x x x x x x x x\nx ::= "a" x | "b" x | ""'),
    "states of a lexer": ("regex", "[ab]*a[ab]{18}c"),
    "middle": ("grammar", 'root ::= s\ns ::= "a" s "a" | "b" s "b" | ""'),
    "nested": ("grammar", 'root ::= "(" root ")" | "(" root "]" | "(" root | "a"'),
    "sums": ("grammar", 'root ::= root "+" root | root "*" root | "a" | "(" root ")"'),
}
HARMLESS = {"any text": ("regex", "(.|\\n)*"), "any object": ("json_object", "")}


def write(bench, kind, value, tokens):
    """Write random text; return what ended it, how many tokens it had, and the bytes that the matcher took."""
    rng, matcher, before = random.Random(1), TimedMatcher(bench.matcher(kind, value)), footprint()
    ends, near = set(bench.tokenizer.eos_ids), {*bench.tokenizer.encode("ab(+", add_special_tokens=False)}
    said, count = "", 0
    try:
        while count < tokens:
            allowed = [token for token in bench.allowed(matcher) if token not in ends]
            if not allowed:
                break
            matcher.accept(rng.choice([token for token in allowed if token in near] or allowed))
            count += 1
    except RuntimeError as error:
        said = str(error)
    return said, count, footprint().since(before)


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_matcher_that_grows_is_ended(bench, name):
    began = time.thread_time()
    said, count, grown = write(bench, *HOSTILE[name], 3000)
    assert time.thread_time() - began < 3 * (FIRST_SECONDS + 3000 * TOKEN_SECONDS)  # the test's own work too
    assert grown < 512 * MIB  # one of them took 1.4 GB for this text
    if name in ("every way to cut it", "empty parts"):
        assert "too much time" in said and count < 2500


@pytest.mark.parametrize("name", HARMLESS)
def test_a_long_text_of_a_harmless_grammar_is_not(bench, name):
    said, count, grown = write(bench, *HARMLESS[name], 3000)
    assert (said, count) == ("", 3000) and grown < 20 * MIB


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize("driver", ["llguidance"])
def test_a_limit_that_another_text_of_the_grammar_has_met_is_told_as_one(bench):
    rng, ends = random.Random(1), bench.tokenizer.eos_ids
    compiled = bench.backend.compile("regex", "(.{1,9999}){1,9999}")
    one, other = compiled.matcher(), compiled.matcher()
    token = next(token for token in bench.allowed(one) if token not in ends)
    with pytest.raises(RuntimeError, match="too many"):
        for _ in range(500):
            other.accept(rng.choice([token for token in bench.allowed(other) if token not in ends]))
    with pytest.raises(RuntimeError, match="too many"):  # not False, which would blame whoever chose the token
        one.accept(token)
