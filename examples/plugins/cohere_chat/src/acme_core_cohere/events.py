"""One answer as Cohere's events, and the whole answer folded from those very events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from core.api import Answer, Delta, Outlet, Reasoning, Text, ToolArguments, ToolEnd, ToolStart

Event = dict[str, Any]
_REASONS = {"length": "MAX_TOKENS", "abort": "ERROR"}


class ChatJob:
    """A generation of one sequence."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._begun = self._open = False  # the message; a piece of its content
        self._calls = 0

    async def collect(self) -> bytes:
        """Return the whole answer as JSON."""
        whole = Whole()

        def take(deltas: Sequence[Delta]) -> bool:
            for event in self._events(deltas):
                whole.add(event)
            return True

        await self._answer.run(take)
        return json.dumps(whole.answer).encode()

    async def stream(self, outlet: Outlet) -> None:
        """Put the events into an outlet; what a step brings is put at once."""

        def take(deltas: Sequence[Delta]) -> bool:
            events = self._events(deltas)
            return not events or outlet.put(b"".join(map(encoded, events)))

        async def more() -> bool:
            await outlet.room()
            return True

        await self._answer.run(take, more)

    def _events(self, deltas: Sequence[Delta]) -> list[Event]:
        found: list[Event] = []
        if not self._begun:
            self._begun = True
            empty = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
            found.append({"type": "message-start", "id": self._answer.id, "delta": {"message": empty}})
        for delta in deltas:
            for event in delta.events:
                found += self._said(event)
            if delta.finish is not None:
                found += [*self._closed(), self._end(delta.finish.reason, delta.finish.stop)]
        return found

    def _said(self, event: Any) -> list[Event]:
        if isinstance(event, Text):
            begin = [] if self._open else [_piece("content-start", 0, content={"type": "text", "text": ""})]
            self._open = True
            return [*begin, _piece("content-delta", 0, content={"text": event.text})]
        if isinstance(event, Reasoning):
            return [{"type": "tool-plan-delta", "delta": {"message": {"tool_plan": event.text}}}]
        if isinstance(event, ToolStart):
            self._calls += 1
            call = {"id": self._answer.call_id(event.name, event.index), "type": "function"}
            function = {"name": event.name, "arguments": ""}
            return [*self._closed(), _piece("tool-call-start", event.index, tool_calls={**call, "function": function})]
        if isinstance(event, ToolArguments):
            return [_piece("tool-call-delta", event.index, tool_calls={"function": {"arguments": event.json}})]
        return [{"type": "tool-call-end", "index": event.index}] if isinstance(event, ToolEnd) else []

    def _closed(self) -> list[Event]:
        if not self._open:
            return []
        self._open = False
        return [{"type": "content-end", "index": 0}]

    def _end(self, reason: str, stop: str | int | None) -> Event:
        usage = self._answer.usage
        tokens = {"input_tokens": usage.prompt, "output_tokens": usage.completion}
        done = "TOOL_CALL" if self._calls else "STOP_SEQUENCE" if isinstance(stop, str) else "COMPLETE"
        told = {"finish_reason": _REASONS.get(reason, done), "usage": {"billed_units": tokens, "tokens": tokens}}
        return {"type": "message-end", "delta": told}


class Whole:
    """The answer, growing by events."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] = {}

    def add(self, event: Event) -> None:
        """Take in an event of the stream."""
        kind, delta = event["type"], event.get("delta", {})
        if kind == "message-start":
            self.answer = {"id": event["id"], "message": {"role": "assistant"}}
            return
        message = self.answer["message"]
        if kind == "message-end":
            self.answer |= delta
        elif kind == "tool-plan-delta":
            message["tool_plan"] = message.get("tool_plan", "") + delta["message"]["tool_plan"]
        elif kind == "content-start":
            message["content"] = [delta["message"]["content"]]
        elif kind == "content-delta":
            message["content"][0]["text"] += delta["message"]["content"]["text"]
        elif kind == "tool-call-start":
            message.setdefault("tool_calls", []).append(delta["message"]["tool_calls"])
        elif kind == "tool-call-delta":
            new = delta["message"]["tool_calls"]["function"]
            message["tool_calls"][-1]["function"]["arguments"] += new["arguments"]


def encoded(event: Event) -> bytes:
    """Return an event as it goes over the wire."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _piece(kind: str, index: int, **message: Any) -> Event:
    return {"type": kind, "index": index, "delta": {"message": message}}
