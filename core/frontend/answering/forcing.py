"""Calls that a request demands, and arguments that must follow their schemas: said by a grammar, not hoped for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.api.errors import RequestError
from core.api.grammars import Grammar, Thinking
from core.api.parsers import CallGrammar, ParserContext
from core.api.sampling_params import SamplingParams
from core.frontend.answering.call_rules import CallRules
from core.frontend.answering.parsing import AnswerParser
from core.frontend.conversation import Conversation

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
        parser: Reads the answer; None passes its text on as it is. A call that is demanded is read all the same.
        grammars: Kinds of grammar that the engine knows; what is only better with one is left out without it.

    Raises:
        RequestError: A call is demanded beside an answer of another form, or cannot be enforced.
    """
    rules = CallRules() if parser is None else parser.rules
    found, param = _call_grammar(chat, params, rules, context, grammars)
    if found is None:
        return params, parser
    tags = found.thinking
    thinking = None if tags is None else Thinking(tags.end, tags.start, tags.open)
    grammar = Grammar(found.kind, found.value, thinking, param)
    read = AnswerParser(found.make) if parser is None else replace(parser, make=found.make)
    return params.replace(grammar=grammar), read


def _call_grammar(
    chat: Conversation,
    params: SamplingParams,
    rules: CallRules,
    context: ParserContext,
    grammars: frozenset[str] | None,
) -> tuple[CallGrammar | None, str]:
    if not chat.tool_choice.demands:
        if params.grammar is not None or not _strict(chat.offered):
            return None, _CHOICE
        strict = rules.strict(context, chat.offered, many=chat.parallel_tool_calls)
        usable = strict is not None and (grammars is None or strict.kind in grammars)
        return (strict if usable else None), "tools"
    if params.grammar is not None:
        raise RequestError(f"{_CHOICE} cannot be used together with {params.grammar.param}", param=_CHOICE)
    name = chat.tool_choice.name
    tools = [tool for tool in chat.tools if name is None or tool["function"]["name"] == name]
    many = name is None and chat.parallel_tool_calls
    found = rules.forced(context, tools, many=many, named=name is not None)
    if grammars is not None and found.kind not in grammars:
        said = f"{_CHOICE}: this server enforces no calls, as it was started without --structured-output"
        raise RequestError(said, param=_CHOICE, code="unsupported_parameter")
    return found, _CHOICE


def _strict(tools: Sequence[Mapping[str, Any]]) -> bool:
    return any(tool["function"].get("strict") is True for tool in tools)
