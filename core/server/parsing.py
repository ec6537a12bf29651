"""Which parser reads the answers: the tool parser, the reasoning parser, or one behind the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from core.api.descriptors import ToolParserSpec
from core.api.parsers import OutputParser, ParseEvent, ParserContext, Text

TOOLS, REASONING = "tools", "reasoning"

Factory = Callable[[ParserContext], OutputParser]


@dataclass(frozen=True, slots=True)
class AnswerParser:
    """Makes the parser of one answer.

    Attributes:
        make: Called with the request's context.
        special_tokens: The special tokens must stay in the text, because tags are among them.
    """

    make: Factory
    special_tokens: bool = False


class Staged:
    """The reasoning parser first; what it shows goes to the tool parser."""

    def __init__(self, reasoning: OutputParser, tools: OutputParser) -> None:
        self._reasoning, self._tools = reasoning, tools

    def feed(self, text: str, token_ids: Sequence[int] = ()) -> list[ParseEvent]:
        """Take in the next piece of the text and return what is certain by now."""
        return self._pass(self._reasoning.feed(text, token_ids))

    def finish(self) -> list[ParseEvent]:
        """End the message."""
        return [*self._pass(self._reasoning.finish()), *self._tools.finish()]

    def _pass(self, events: Sequence[ParseEvent]) -> list[ParseEvent]:
        found: list[ParseEvent] = []
        for event in events:
            found += self._tools.feed(event.text) if isinstance(event, Text) else [event]
        return found


def answer_parser(chosen: Sequence[tuple[ToolParserSpec, Factory]], tool_parser: str | None) -> AnswerParser | None:
    """Return what reads the answers; None if no parser was chosen.

    Args:
        chosen: Descriptor and implementation of the tool parser, if there is one, and of the reasoning parser.
        tool_parser: What the user asked for; without it, the only parser there is reads reasoning alone.
    """
    if not chosen:
        return None
    special = any(spec.special_tokens for spec, _ in chosen)
    if len(chosen) == 2:
        return AnswerParser(_staged(chosen[0][1], chosen[1][1]), special)
    only = chosen[0][1]
    return AnswerParser(only if tool_parser else _reading(only, REASONING), special)


def _reading(parser: Factory, what: str) -> Factory:
    return lambda ctx: parser(replace(ctx, reads=ctx.reads & {what}))


def _staged(tools: Factory, reasoning: Factory) -> Factory:
    def make(ctx: ParserContext) -> OutputParser:
        first = _reading(reasoning, REASONING)(ctx)
        return Staged(first, _reading(tools, TOOLS)(replace(ctx, in_reasoning=False)))

    return make
