"""Parts of an answer that a client wants to see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.api import Reasoning, ToolArguments, ToolEnd, ToolStart
from core.api.parsers import ParseEvent


@dataclass(frozen=True, slots=True)
class Shown:
    """Parts of a chat answer that are shown.

    Attributes:
        reasoning: The thinking; it is kept back otherwise.
        many_calls: Every call; only the first otherwise.
        tokens_as_ids: Tokens of log-probabilities as `token_id:N`.
        prompt_text: The prompt as the template rendered it.
    """

    reasoning: bool = True
    many_calls: bool = True
    tokens_as_ids: bool = False
    prompt_text: bool = False

    def events(self, events: Sequence[ParseEvent]) -> Sequence[ParseEvent]:
        """Return the events to show."""
        if self.reasoning and self.many_calls:
            return events
        return [event for event in events if self._visible(event)]

    def _visible(self, event: ParseEvent) -> bool:
        if isinstance(event, Reasoning):
            return self.reasoning
        return self.many_calls or not isinstance(event, ToolStart | ToolArguments | ToolEnd) or event.index == 0


EVERYTHING = Shown()
