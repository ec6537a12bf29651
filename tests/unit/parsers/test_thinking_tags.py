"""Families say where a message's thinking is, so that grammars can begin behind it."""

from __future__ import annotations

import pytest
from core_plugin_hermes.families import HERMES
from core_plugin_parsers_reasoning.families import HARMONY, THINK, THINK_FIRST

from core.api import ParserContext, ThinkingTags

OPEN, CLOSE = "<think>", "</think>"


class Letters:
    """A tokenizer whose ids are characters."""

    def decode(self, ids, *, skip_special_tokens=True):
        return "".join(map(chr, ids))


def context(prompt="", **fields):
    return ParserContext(tokenizer=Letters(), prompt_ids=list(map(ord, prompt)), **fields)


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize(
    ("family", "ctx", "tags"),
    [
        (THINK, context(), ThinkingTags(CLOSE, OPEN)),
        (HERMES, context(), ThinkingTags(CLOSE, OPEN)),
        (THINK, context("assistant\n<think>\n"), ThinkingTags(CLOSE, OPEN, open=True)),
        (THINK, context(in_reasoning=True), ThinkingTags(CLOSE, OPEN, open=True)),
        (THINK, context("assistant\n<think>\n\n</think>\n\n"), None),
        (THINK, context(thinks=False), None),
        (THINK_FIRST, context(), ThinkingTags(CLOSE, OPEN, open=True)),
        (THINK_FIRST, context(thinks=False), None),
        (HARMONY, context(), ThinkingTags("<|channel|>final<|message|>", open=True)),
    ],
)
def test_where_the_thinking_is(family, ctx, tags):
    assert family.thinking(ctx) == tags
