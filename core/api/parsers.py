"""Output parsers: tool calls and reasoning in a model's text, as one state machine.

A whole text is parsed as `feed(all) + finish()`, so streaming and non-streaming cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from core.api.tokenizer import Tokenizer


@dataclass(slots=True, unsafe_hash=True)  # as `Delta`: one for every token of every stream
class Text:
    """Visible content.

    Attributes:
        text: A further piece of it.
    """

    text: str


@dataclass(slots=True, unsafe_hash=True)
class Reasoning:
    """Content of the model's thinking.

    Attributes:
        text: A further piece of it.
    """

    text: str


@dataclass(frozen=True, slots=True)
class ToolStart:
    """A call begins.

    Attributes:
        index: Counts the calls of this message from 0.
        name: The function's name.
    """

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """A further piece of a call's arguments.

    Attributes:
        index: Which call.
        json: Piece of the JSON text.
    """

    index: int
    json: str


@dataclass(frozen=True, slots=True)
class ToolEnd:
    """A call is complete; its argument pieces joined are valid JSON.

    Attributes:
        index: Which call.
    """

    index: int


ParseEvent = Text | Reasoning | ToolStart | ToolArguments | ToolEnd
"""Events that a parser returns, in the order of the message."""


@dataclass(frozen=True, slots=True)
class ParserContext:
    """Context of a request that a parser may use.

    Attributes:
        tools: The request's tools, OpenAI's `tools` list.
        in_reasoning: The prompt opened the thinking; the text begins inside it.
        thinks: Whether the request lets the model think; if not, the text does not begin inside its thinking even
            where models of its kind think first.
        reads: What of `tools` and `reasoning` is to be read; the rest, tags included, is text.
        tokenizer: The model's; None for a text that no model has just written.
        response_template: How the checkpoint itself describes the format of messages, if it does.
        options: The plugin's own options.
        prompt_ids: The prompt, whose end is the beginning of the message where templates write a part of it.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    in_reasoning: bool = False
    thinks: bool = True
    reads: frozenset[str] = frozenset({"tools", "reasoning"})
    tokenizer: Tokenizer | None = None
    response_template: Mapping[str, Any] | None = None
    prompt_ids: Sequence[int] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


class OutputParser(Protocol):
    """Runtime of a `ToolParserSpec`, for one message. Work is linear in the length of the text.

    Where calls and reasoning are read, a call ends the thinking in which it begins.
    """

    def __init__(self, ctx: ParserContext) -> None: ...

    def feed(self, text: str, token_ids: Sequence[int] = ()) -> list[ParseEvent]:
        """Take the next piece of the text and return the events that are certain by now.

        Args:
            token_ids: Tokens that made the piece, where they are known.
        """
        ...

    def finish(self) -> list[ParseEvent]:
        """Return what is left when the text has ended; called once."""
        ...


@dataclass(frozen=True, slots=True)
class ThinkingTags:
    """Where a message's thinking begins and ends.

    Attributes:
        end: Text that ends it; the answer follows.
        start: Text that begins it, where the model may think or not.
        open: The message begins inside it.
    """

    end: str
    start: str = ""
    open: bool = False


class KnowsThinking(Protocol):
    """Optional part of a parser's factory (the object that `impl` names): lets grammars begin behind the thinking."""

    def thinking(self, ctx: ParserContext) -> ThinkingTags | None:
        """Return where the thinking of a message is; None when the message has none."""
        ...


@dataclass(frozen=True, slots=True)
class CallGrammar:
    """Grammar of an answer whose calls are certain.

    Attributes:
        kind, value: A grammar, as `core.api.structured` has them.
        make: Makes the parser of such answers.
        thinking: Where the thinking is that may come first.
    """

    kind: str
    value: str
    make: Callable[[ParserContext], OutputParser]
    thinking: ThinkingTags | None = None


class EnforcesCalls(Protocol):
    """Optional part of a parser's factory (the object that `impl` names): lets calls be enforced by a grammar."""

    def forced(self, ctx: ParserContext, tools: Sequence[Mapping[str, Any]], *, many: bool) -> CallGrammar:
        """Return the grammar of an answer that calls one of `tools` (OpenAI's form), or several times."""
        ...

    def strict(self, ctx: ParserContext, tools: Sequence[Mapping[str, Any]], *, many: bool) -> CallGrammar | None:
        """Return the grammar of an answer whose calls follow the schemas of strict tools; None where it has none."""
        ...
