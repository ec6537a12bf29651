"""Structured output of models that think first: the grammar begins behind the thinking."""

from __future__ import annotations

from core.api.parsers import ParserContext
from core.engine.grammars import Thinking
from core.engine.sampling import SamplingParams
from core.server.parsing import AnswerParser


def after_thinking(params: SamplingParams, parser: AnswerParser | None, context: ParserContext) -> SamplingParams:
    """Return parameters whose grammar, if they have one, knows how the model thinks before it answers."""
    grammar = params.grammar
    if grammar is None or grammar.thinking is not None or parser is None or parser.thinking is None:
        return params
    tags = parser.thinking(context)
    if tags is None:
        return params
    return params.replace(grammar=grammar.replace(thinking=Thinking(tags.end, tags.start, tags.open)))
