"""Texts of fields, passed on while they arrive."""

from __future__ import annotations

from core.api import Reasoning, Text
from core.api.parsers import ParseEvent
from core_plugin_parsers_hf.template import Field, Holds


class ProseOut:
    """Passes the texts of fields on, without the white space at the edges of those that are stripped."""

    def __init__(self) -> None:
        self._events: list[ParseEvent] = []
        self._space = ""  # at the end of what was said: it counts if more follows
        self._fresh = True
        self._said: set[str] = set()

    def edge(self) -> str:
        """A field begins or ends here; return the white space that is therefore left out."""
        space, self._space, self._fresh = self._space, "", True
        return space

    def go_on(self, text: str) -> None:
        """Pass on what looked like a field, and go on with the text in front of it."""
        self.put(Holds.TEXT, text)
        self._fresh = False

    def say(self, field: Field, text: str) -> None:
        """Pass on a piece of a field's text."""
        body = text.rstrip() if field.strips else text
        held = text[len(body) :]
        if self._fresh and field.strips:
            body = body.lstrip()
        if body:
            again = field.join if self._fresh and field.name in self._said else ""
            self.put(field.holds, again + self._space + body)
            self._said.add(field.name)
            self._fresh, self._space = False, held
        elif not self._fresh:
            self._space += held

    def put(self, holds: Holds, text: str) -> None:
        """Pass on text as it is."""
        if text:
            self._events.append(Reasoning(text) if holds is Holds.REASONING else Text(text))

    def take(self) -> list[ParseEvent]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events
