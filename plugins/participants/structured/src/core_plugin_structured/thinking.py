"""A model that thinks first: its thinking is free, but may be bounded; what follows belongs to the grammar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np

from core.api.grammars import Thinking, last_place
from core.api.structured import GrammarMatcher
from core.api.tokenizer import Tokenizer

_TAIL = 64


class _Part(Enum):
    CHOICE = auto()
    """Nothing is written yet: the model may begin to think or to answer."""
    THOUGHTS = auto()
    ANSWER = auto()


@dataclass(frozen=True, slots=True)
class _State:
    part: _Part
    tokens: int = 0
    tail: str = ""


class ThinkingMatcher:
    """A `GrammarMatcher` whose grammar begins where the thinking ends.

    The text cannot end inside the thinking, so that an output that ended by itself is a sentence of the grammar.

    Args:
        stop_ids: Tokens that end the text.
    """

    def __init__(
        self, matcher: GrammarMatcher, thinking: Thinking, tokenizer: Tokenizer, stop_ids: Sequence[int]
    ) -> None:
        self._matcher, self._thinking, self._tokenizer, self._stop_ids = matcher, thinking, tokenizer, stop_ids
        self._start = _token_of(tokenizer, thinking.start)
        self._closing = _ids_of(tokenizer, thinking.end)
        part = _Part.THOUGHTS if thinking.open else _Part.ANSWER if self._start is None else _Part.CHOICE
        self._states = [_State(part)]

    def fill(self, mask: np.ndarray) -> None:
        """Allow everything but the end inside the thinking, what the grammar allows after it."""
        state = self._states[-1]
        if state.part is not _Part.THOUGHTS:
            self._matcher.fill(mask)
            if state.part is _Part.CHOICE and self._start is not None:
                _set(mask, self._start)
            return
        forced = self._forced(state)
        if forced is not None:
            _set(mask, forced)
            return
        mask[:] = -1
        for token in self._stop_ids:
            _clear(mask, token)

    def accept(self, token: int) -> bool:
        """Move on by a token."""
        state = self._states[-1]
        if state.part is _Part.THOUGHTS:
            self._states.append(self._thought(state, token))
            return True
        if state.part is _Part.CHOICE and token == self._start:
            self._states.append(_State(_Part.THOUGHTS))
            return True
        if not self._matcher.accept(token):
            return False
        self._states.append(_State(_Part.ANSWER, tokens=1))
        return True

    def rollback(self, count: int) -> None:
        """Take back tokens, those of the grammar from its own matcher."""
        if count:
            taken = self._states[-count:]
            self._matcher.rollback(sum(state.part is _Part.ANSWER and state.tokens == 1 for state in taken))
            del self._states[-count:]

    def is_complete(self) -> bool:
        """Whether the thinking is over and what follows it is a sentence."""
        return self._states[-1].part is not _Part.THOUGHTS and self._matcher.is_complete()

    def _thought(self, state: _State, token: int) -> _State:
        tail = state.tail + self._tokenizer.token(token)
        if self._thinking.end in tail:
            return _State(_Part.ANSWER)  # its zero tokens: this one was not the grammar's
        return replace(state, tokens=state.tokens + 1, tail=tail[-_TAIL:])

    def _forced(self, state: _State) -> int | None:
        """Return the next token of the end, once the budget is spent."""
        budget = self._thinking.budget
        if budget is None or state.tokens < budget:
            return None
        written = min(state.tokens - budget, len(self._closing) - 1)
        return self._closing[written]


class ThoughtLimit:
    """Allows everything, as no grammar does, until the thinking has used up its budget: then it is ended.

    An output may think more than once; the budget is for all of it together.

    Args:
        prompt: `(prompt,)` token ids; a thought that they begin counts.
    """

    def __init__(self, thinking: Thinking, budget: int, tokenizer: Tokenizer, prompt: np.ndarray) -> None:
        self._thinking, self._tokenizer = thinking, tokenizer
        self._closing = _ids_of(tokenizer, thinking.end)
        start = _ids_of(tokenizer, thinking.start) if thinking.start else []
        self._inside = thinking.open
        self._left = budget
        if thinking.open and (begun := last_place(prompt, start)) >= 0:
            self._left -= len(prompt) - begun - len(start)
        self._written = 0  # tokens of the end that were forced
        self._tail = ""

    @property
    def idle(self) -> bool:
        """Whether the next token is the model's own choice."""
        return not self._inside or self._left > 0

    def fill(self, mask: np.ndarray) -> None:
        """Allow the next token of the end alone, or everything."""
        if self.idle:
            mask[:] = -1
        else:
            _set(mask, self._closing[self._written])

    def accept(self, token: int) -> bool:
        """Move on by a token; every one is as good as another."""
        forced = not self.idle
        self._tail = (self._tail + self._tokenizer.token(token))[-_TAIL:]
        if not self._inside:
            start = self._thinking.start
            if start and start in self._tail:
                self._inside, self._tail = True, ""
            return True
        self._left -= 1
        self._written += forced
        if self._thinking.end in self._tail or self._written == len(self._closing):
            self._inside, self._tail, self._written = False, "", 0
        return True


def _token_of(tokenizer: Tokenizer, text: str) -> int | None:
    """Return the one token that a text is, None if it is none or several."""
    ids = _ids_of(tokenizer, text) if text else []
    return ids[0] if len(ids) == 1 else None


def _ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    for token in sorted(tokenizer.special_ids):
        if tokenizer.token(token) == text:
            return [token]
    return tokenizer.encode(text, add_special_tokens=False)


def _set(mask: np.ndarray, token: int) -> None:
    words = mask.view(np.uint32)
    if token // 32 < len(words):
        words[token // 32] |= np.uint32(1 << token % 32)


def _clear(mask: np.ndarray, token: int) -> None:
    words = mask.view(np.uint32)
    if token // 32 < len(words):
        words[token // 32] &= np.uint32(~(1 << token % 32) & 0xFFFFFFFF)
