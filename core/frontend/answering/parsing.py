"""Which parser reads the answers: the tool parser, the reasoning parser, or one behind the other."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from core.api.descriptors import ToolParserSpec
from core.api.parsers import CallGrammar, OutputParser, ParserContext, ThinkingTags
from core.api.tokenizer import Tokenizer
from core.frontend.answering.call_rules import CallRules
from core.frontend.answering.marked import Factory, Marking
from core.frontend.answering.staged import REASONING, TOOLS, reading, staged
from core.plugins.active import ActivePlugins
from core.plugins.handed import OUTPUT_PARSER, Handed

TOOL_PARSERS = "core.tool_parsers"

DEFAULT_CALL_ID = ToolParserSpec.call_id

THINKING_SWITCHES = ("enable_thinking", "thinking")
"""Template variables that switch the thinking off, which parsers look at too."""


_THINK = "<think>"
_TAIL_TOKENS = 8


@dataclass(frozen=True, slots=True)
class AnswerParser:
    """Makes the parser of one answer.

    Attributes:
        make: Called with the request's context.
        special_tokens: The special tokens must stay in the text, because tags are among them.
        call_id: How ids of calls are written; see `ToolParserSpec.call_id`.
        thinking: Says where the thinking of an answer is; None when nobody knows.
        rules: What can be enforced of calls.
        owner: Whose parsers they are, for errors: kind, name, distribution and version.
    """

    make: Factory
    special_tokens: bool = False
    call_id: str = DEFAULT_CALL_ID
    thinking: Callable[[ParserContext], ThinkingTags | None] | None = None
    rules: CallRules = field(default_factory=CallRules)
    owner: str = "the parser"

    def id_of(self, name: str, number: int) -> str:
        """Return the id of a call, the `number`-th of the conversation, counted from 0."""
        return self.call_id.format(name=name, number=number, random=uuid.uuid4().hex)

    def context(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int],
        tools: Sequence[Mapping[str, Any]],
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> ParserContext:
        """Return what `make` needs for the answers to a prompt.

        Args:
            tools: What the model may call; a call of a tool that nobody offered is text.
            template_kwargs: The request's own template variables, which may switch the thinking off.
        """
        # Templates of thinking models may open the block themselves; the output then starts inside it.
        tail = tokenizer.decode(prompt_ids[-_TAIL_TOKENS:], skip_special_tokens=False)
        return ParserContext(
            tools,
            in_reasoning=tail.rstrip().endswith(_THINK),
            thinks=_thinks(template_kwargs),
            reads=frozenset({TOOLS, REASONING} if tools else {REASONING}),
            tokenizer=tokenizer,
            response_template=tokenizer.response_template,
            prompt_ids=prompt_ids,
        )


class ConfiguredParser:
    """A plugin's parser with its own options in every context, those of its optional parts (`forced`, ...) included."""

    def __init__(self, make: Any, options: Mapping[str, Any]) -> None:
        self._make, self._options = make, options

    def __call__(self, ctx: ParserContext) -> OutputParser:
        """Return a parser for one message."""
        parser: OutputParser = self._make(self._with(ctx))
        return parser

    def __getattr__(self, name: str) -> Callable[..., Any]:
        part = getattr(self._make, name)

        def asked(ctx: ParserContext, *arguments: Any, **named: Any) -> Any:
            found = part(self._with(ctx), *arguments, **named)
            return (
                replace(found, make=ConfiguredParser(found.make, self._options))
                if isinstance(found, CallGrammar)
                else found
            )

        return asked

    def _with(self, ctx: ParserContext) -> ParserContext:
        return replace(ctx, options=self._options)


def chosen_parser(active: ActivePlugins, tool_parser: str | None) -> AnswerParser | None:
    """Return what reads the answers, of the parsers that a plan chose. Arguments and result as `answer_parser`."""
    chosen = active.impls(TOOL_PARSERS)
    owner = f"tool parser {' or '.join(planned.owner for planned, _, _ in chosen)}"
    parsers = [
        (cast(ToolParserSpec, spec), ConfiguredParser(make, planned.options) if planned.options else make)
        for planned, spec, make in chosen
    ]
    return answer_parser(parsers, tool_parser, owner)


def answer_parser(
    chosen: Sequence[tuple[ToolParserSpec, Factory]], tool_parser: str | None, owner: str = "the parser"
) -> AnswerParser | None:
    """Return what reads the answers; None if no parser was chosen.

    Args:
        chosen: Descriptor and implementation of the tool parser, if there is one, and of the reasoning parser.
        tool_parser: What the user asked for; without it, the only parser there is reads reasoning alone.
        owner: Whose they are, for errors.
    """
    if not chosen:
        return None
    special = any(spec.special_tokens for spec, _ in chosen)
    marking, (spec, first), reasoning = Marking(), chosen[0], chosen[-1][1]
    handed = Handed(owner)

    def held(make: Factory) -> Factory:
        return lambda ctx: handed.ask("making the parser of an answer", OUTPUT_PARSER, make, ctx)

    def around(make: Factory) -> Factory:
        return marking.around(make) if special else make

    def whole(make: Factory, closed: bool = False) -> Factory:
        return around(staged(held(make), held(reasoning), closed=closed) if len(chosen) == 2 else held(make))

    def behind(make: Factory, closed: bool) -> Factory:
        return around(staged(held(make), held(reasoning), closed=closed) if knows else held(make))

    knows = getattr(reasoning, "thinking", None)  # an optional part: see `core.api.KnowsThinking`
    # Without a word on where the thinking ends, a grammar begins at once, and there is none to be read.
    plain = CallRules(None, behind, knows)
    if not tool_parser:
        return AnswerParser(whole(reading(first, REASONING)), special, spec.call_id, knows, plain, owner)
    if not hasattr(first, "forced"):  # an optional part: see `core.api.EnforcesCalls`
        return AnswerParser(whole(first), special, spec.call_id, knows, plain, owner)
    instead = knows if len(chosen) == 2 else None
    return AnswerParser(whole(first), special, spec.call_id, knows, CallRules(first, whole, instead), owner)


def calls_before(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return how many calls a conversation holds."""
    return sum(len(message.get("tool_calls") or ()) for message in messages)


def thinking_switches(on: bool) -> dict[str, bool]:
    """Return the template variables that let a model think, or not, by all their names."""
    return dict.fromkeys(THINKING_SWITCHES, on)


def _thinks(template_kwargs: Mapping[str, Any] | None) -> bool:
    """Whether a request's template variables let the model think, which they do unless they say that it must not."""
    return all((template_kwargs or {}).get(name) is not False for name in THINKING_SWITCHES)
