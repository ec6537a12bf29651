"""Calls that a request demands, and arguments that must follow their schemas: said by a grammar, not hoped for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.api.errors import RequestError
from core.api.parsers import CallGrammar, ParserContext
from core.engine.grammars import Grammar, Thinking
from core.engine.sampling import SamplingParams
from core.frontend.conversation import Conversation
from core.server.parsing import AnswerParser

_CHOICE = "tool_choice"


def enforced(
    chat: Conversation,
    params: SamplingParams,
    parser: AnswerParser | None,
    context: ParserContext,
    *,
    grammars: frozenset[str] | None = None,
) -> tuple[SamplingParams, AnswerParser | None]:
    """Return parameters and parser of a conversation's answer, with what is enforced of its calls.

    Args:
        grammars: Kinds of grammar that the engine knows; what is only better with one is left out without it.

    Raises:
        RequestError: A call is demanded and cannot be enforced.
    """
    found, param = _call_grammar(chat, params, parser, context, grammars)
    if found is None or parser is None:
        return params, parser
    tags = found.thinking
    thinking = None if tags is None else Thinking(tags.end, tags.start, tags.open)
    grammar = Grammar(found.kind, found.value, thinking, param)
    return params.replace(grammar=grammar), replace(parser, make=found.make)


def _call_grammar(
    chat: Conversation,
    params: SamplingParams,
    parser: AnswerParser | None,
    context: ParserContext,
    grammars: frozenset[str] | None,
) -> tuple[CallGrammar | None, str]:
    rules = None if parser is None else parser.rules
    if chat.tool_choice.mode in ("required", "function"):
        if params.grammar is not None:
            raise RequestError(f"{_CHOICE} cannot be used together with {params.grammar.param}", param=_CHOICE)
        if rules is None:
            text = (
                f"{_CHOICE}: this server cannot enforce a call, because it was started without a tool parser that can"
            )
            raise RequestError(text, param=_CHOICE, code="unsupported_parameter")
        name = chat.tool_choice.name
        tools = [tool for tool in chat.tools if name is None or tool["function"]["name"] == name]
        return rules.forced(context, tools, many=name is None and chat.parallel_tool_calls), _CHOICE
    if rules is None or params.grammar is not None or not _strict(chat.offered):
        return None, _CHOICE
    found = rules.strict(context, chat.offered, many=chat.parallel_tool_calls)
    usable = found is not None and (grammars is None or found.kind in grammars)
    return (found if usable else None), "tools"


def _strict(tools: Sequence[Mapping[str, Any]]) -> bool:
    return any(tool["function"].get("strict") is True for tool in tools)
