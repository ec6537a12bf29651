"""Reader of one sequence: its outputs as parse events, the same for every API."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from core.api.errors import PluginError
from core.api.parsers import OutputParser, ParseEvent, Reasoning, Text, ToolArguments, ToolEnd, ToolStart
from core.frontend.results import CompletionOutput
from core.plugins.drivers import describe

_EVENTS = (Text, Reasoning, ToolStart, ToolArguments, ToolEnd)


class AnswerReader:
    """Feeds one sequence's new text to its parser.

    Args:
        parser: None passes the text on as it is.
        calls: Whether the request allows calls; if not, what looks like one stays text.
        owner: Whose parser it is, for errors.
    """

    def __init__(self, parser: OutputParser | None, *, calls: bool, owner: str = "the parser") -> None:
        self._parser = parser
        self._allowed = calls
        self._owner = owner

    def read(self, sequence: CompletionOutput) -> Sequence[ParseEvent]:
        """Return what an output brings; its last one ends the message.

        Raises:
            PluginError: CORE-P108, the parser raised, or gave something that is no parse event.
        """
        if self._parser is None:
            return [Text(sequence.text)] if sequence.text else []
        try:
            events = self._parser.feed(sequence.text, sequence.token_ids)
            if sequence.finish_reason is not None:
                events = [*events, *self._parser.finish()]
            for event in events:
                if not isinstance(event, _EVENTS):
                    raise TypeError(f"a {type(event).__name__} is no parse event")
        except Exception as error:
            raise PluginError("CORE-P108", f"{self._owner}: feed() or finish() raised {describe(error)}.") from error
        return events if self._allowed else [_uncalled(event) for event in events]


def _uncalled(event: ParseEvent) -> ParseEvent:
    """Write a call that nobody offered as text, so that nothing the model said is lost."""
    if isinstance(event, ToolStart):
        return Text(f'{{"name": {orjson.dumps(event.name).decode()}, "arguments": ')
    if isinstance(event, ToolArguments):
        return Text(event.json)
    return Text("}") if isinstance(event, ToolEnd) else event
