"""Output parsers: tool calls and reasoning in a model's text, as one state machine.

A whole text is parsed as `feed(all) + finish()`, so streaming and non-streaming cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Text:
    """Visible content."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Content of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolStart:
    """A call begins; `index` counts the calls of this message from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """A further piece of call `index`'s arguments, as JSON text."""

    index: int
    json: str


@dataclass(frozen=True, slots=True)
class ToolEnd:
    """Call `index` is complete; its argument pieces joined are valid JSON."""

    index: int


ParseEvent = Text | Reasoning | ToolStart | ToolArguments | ToolEnd


@dataclass(frozen=True, slots=True)
class ParserContext:
    """What a parser may know.

    Attributes:
        tools: The request's tools, OpenAI's `tools` list.
        in_reasoning: The prompt opened the thinking; the text begins inside it.
        reads: What of `tools` and `reasoning` is to be read; the rest, tags included, is text.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    in_reasoning: bool = False
    reads: frozenset[str] = frozenset({"tools", "reasoning"})


class OutputParser(Protocol):
    """Runtime of a `ToolParserSpec`, for one message. Work is linear in the length of the text."""

    def __init__(self, ctx: ParserContext) -> None: ...

    def feed(self, text: str, token_ids: Sequence[int] = ()) -> list[ParseEvent]: ...

    def finish(self) -> list[ParseEvent]: ...
