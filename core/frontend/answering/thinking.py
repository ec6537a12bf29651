"""Models that think first: a grammar begins behind the thinking, and a budget bounds it."""

from __future__ import annotations

from core.api.errors import RequestError
from core.api.grammars import Thinking
from core.api.parsers import ParserContext
from core.api.sampling_params import SamplingParams
from core.api.tokenizer import Tokenizer
from core.frontend.answering.parsing import AnswerParser
from core.frontend.thinking import ThinkingMarks

_BOUNDED = SamplingParams(thinking_token_budget=1)


def knows_thinking(parser: AnswerParser | None, tokenizer: Tokenizer) -> bool:
    """Whether it is known where the model thinks, by its parser or by the tokens of its vocabulary."""
    if parser is not None and parser.thinking is not None:
        return True
    try:
        ThinkingMarks(tokenizer).bounded(_BOUNDED, ())
    except RequestError:
        return False
    return True


def after_thinking(params: SamplingParams, parser: AnswerParser | None, context: ParserContext) -> SamplingParams:
    """Return parameters whose grammar and budget, if they have them, know how the model thinks before it answers."""
    grammar, bounded = params.grammar, params.thinking_token_budget is not None
    if (grammar is None and not bounded) or parser is None or parser.thinking is None:
        return params
    if grammar is not None and grammar.thinking is not None:
        return params
    tags = parser.thinking(context)
    if tags is None:  # no thinking, nothing to bound
        return params.replace(thinking_token_budget=None) if bounded else params
    thinking = Thinking(tags.end, tags.start, tags.open)
    if grammar is None:
        return params.replace(thinking=thinking)
    return params.replace(grammar=grammar.replace(thinking=thinking))
