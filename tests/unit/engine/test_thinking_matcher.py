"""A grammar that begins behind the thinking."""

from __future__ import annotations

import numpy as np
import pytest
from core_plugin_structured.thinking import ThinkingMatcher

from core.api.grammars import Thinking

PIECES = ["<eos>", "<think>", "</think>", "a", "b", "</th", "ink>", "x"]
EOS, START, END, A, B, HALF, REST, X = range(8)


class Pieces:
    """A tokenizer of whole pieces; the tags are special."""

    vocab_size, eos_ids, special_ids = len(PIECES), (EOS,), frozenset({EOS, START, END})

    def token(self, token):
        return PIECES[token]

    def encode(self, text, *, add_special_tokens=True):
        return {"</end>": [HALF, REST]}.get(text, [])


class Plain(Pieces):
    """The same without tags of its own: they are written in two tokens."""

    special_ids = frozenset({EOS})

    def encode(self, text, *, add_special_tokens=True):
        return {"</think>": [HALF, REST], "<think>": [A, B]}[text]


class OnlyA:
    """One or more "a"."""

    def __init__(self):
        self.said = []

    def fill(self, mask):
        mask.view(np.uint32)[0] = 1 << A | (1 << EOS if self.said else 0)

    def accept(self, token):
        if token != A:
            return False
        self.said.append(token)
        return True

    def rollback(self, count):
        del self.said[len(self.said) - count :]

    def is_complete(self):
        return bool(self.said)


def make(tokenizer=None, **thinking):
    thinking = {"end": "</think>", "start": "<think>", **thinking}
    return ThinkingMatcher(OnlyA(), Thinking(**thinking), tokenizer or Pieces(), (EOS,))


def allowed(matcher):
    mask = np.zeros(1, np.int32)
    matcher.fill(mask)
    return {token for token in range(len(PIECES)) if mask.view(np.uint32)[0] >> token & 1}


EVERYTHING = set(range(len(PIECES)))


def test_the_model_may_think_first_or_answer_at_once():
    matcher = make()
    assert allowed(matcher) == {A, START}
    assert matcher.accept(A) and allowed(matcher) == {A, EOS} and matcher.is_complete()


def test_thinking_is_free_but_cannot_end_the_text():
    matcher = make()
    assert matcher.accept(START)
    for token in (X, B, A):
        assert allowed(matcher) == EVERYTHING - {EOS} and not matcher.is_complete()
        assert matcher.accept(token)
    assert matcher.accept(END) and allowed(matcher) == {A}
    assert not matcher.accept(X) and matcher.accept(A) and matcher.is_complete()


def test_a_prompt_that_opened_the_thinking():
    matcher = make(open=True)
    assert allowed(matcher) == EVERYTHING - {EOS}
    assert matcher.accept(END) and allowed(matcher) == {A}


def test_without_a_token_for_its_begin_the_grammar_begins_at_once():
    matcher = make(Plain())
    assert allowed(matcher) == {A} and not matcher.accept(X)


@pytest.mark.parametrize("tokens", [(HALF, REST), (X, HALF, REST), (HALF, HALF, REST)])
def test_an_end_that_is_written_in_several_tokens(tokens):
    matcher = make(Plain(), open=True)
    for token in tokens:
        assert allowed(matcher) == EVERYTHING - {EOS}
        assert matcher.accept(token)
    assert allowed(matcher) == {A}


@pytest.mark.parametrize("tokenizer", [Pieces(), Plain()])
def test_a_budget_ends_the_thinking(tokenizer):
    matcher = make(tokenizer, open=True, budget=2)
    assert matcher.accept(X) and matcher.accept(X)
    forced = [END] if isinstance(tokenizer, Pieces) and not isinstance(tokenizer, Plain) else [HALF, REST]
    for token in forced:
        assert allowed(matcher) == {token}
        assert matcher.accept(token)
    assert allowed(matcher) == {A}


def test_rollback_crosses_the_end_of_the_thinking():
    matcher = make()
    path = (START, X, END, A, A)
    states = []
    for token in path:
        states.append((allowed(matcher), matcher.is_complete()))
        assert matcher.accept(token)
    for count in (1, 2, 2):
        matcher.rollback(count)
        del states[len(states) - count + 1 :]
        assert (allowed(matcher), matcher.is_complete()) == states.pop()
    assert allowed(matcher) == {A, START}
    matcher.rollback(0)
    assert all(matcher.accept(token) for token in path) and matcher.is_complete()
