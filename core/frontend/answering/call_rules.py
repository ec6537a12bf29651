"""Enforced calls: grammars of answers that call, by the model's own parser or as plain JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.api.parsers import CallGrammar, ParserContext, ThinkingTags
from core.frontend.answering.marked import Factory
from core.frontend.answering.plain_calls import plain_calls


@dataclass(frozen=True, slots=True)
class CallRules:
    """Rules by which calls can be enforced.

    Attributes:
        parser: The tool parser; None: no tool parser says how the model writes calls, which are plain JSON then.
        whole: Puts what else reads the answers around a tool parser; told whether the thinking ends with its tag only.
        thinking: Knows where the thinking is, if another parser reads it.
    """

    parser: Any = None
    whole: Callable[[Factory, bool], Factory] = lambda make, closed: make
    thinking: Callable[[ParserContext], ThinkingTags | None] | None = None

    def forced(
        self, ctx: ParserContext, tools: Sequence[Mapping[str, Any]], *, many: bool, named: bool = False
    ) -> CallGrammar:
        """Return the grammar of an answer that calls; see `EnforcesCalls`.

        Args:
            named: The only tool was named by the client.
        """
        if self.parser is None:
            found = plain_calls(tools, many=many, named=named)
        else:
            found = self.parser.forced(ctx, tools, many=many)
        return self._whole(found, ctx, closed=True)  # the grammar waits for the end of the thinking

    def strict(self, ctx: ParserContext, tools: Sequence[Mapping[str, Any]], *, many: bool) -> CallGrammar | None:
        """Return the grammar of an answer whose calls follow their schemas; None where that cannot be said."""
        found = None if self.parser is None else self.parser.strict(ctx, tools, many=many)
        return None if found is None else self._whole(found, ctx, closed=False)

    def _whole(self, found: CallGrammar, ctx: ParserContext, *, closed: bool) -> CallGrammar:
        thinking = self.thinking(ctx) if self.thinking else found.thinking
        return replace(found, make=self.whole(found.make, closed), thinking=thinking)
