"""One answer of the Messages API. Whole messages are folded from the very events that a stream sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from core.api import Answer, Delta, Finish, Outlet
from core_plugin_anthropic.blocks import BlockWriter, Event, MessageFold


@dataclass(slots=True)
class MessageJob:
    """An answer of one sequence, as a message."""

    answer: Answer
    model: str
    writer: BlockWriter

    async def collect(self) -> bytes:
        """Return the whole message as JSON."""
        fold, first = MessageFold(), True

        def take(deltas: Sequence[Delta]) -> bool:
            nonlocal first
            for event in self._events(deltas, first=first):
                fold.add(event)
            first = False
            return not self.writer.full

        await self.answer.run(take)
        return orjson.dumps(fold.message())

    async def stream(self, outlet: Outlet) -> None:
        """Put server-sent events into an outlet; what one engine output brings is put at once."""
        first = True

        def take(deltas: Sequence[Delta]) -> bool:
            nonlocal first
            events, first = self._events(deltas, first=first), False
            room = not events or outlet.put(b"".join(map(encode, events)))
            return room and not self.writer.full

        async def more() -> bool:
            if not self.writer.full:  # else nothing more is generated while the client catches up
                await outlet.room()
            return not self.writer.full

        await self.answer.run(take, more)

    def _events(self, deltas: Sequence[Delta], *, first: bool) -> list[Event]:
        found: list[Event] = [self._start(), {"type": "ping"}] if first else []
        for delta in deltas:
            found += self.writer.write(delta.events)
            if delta.finish is not None or self.writer.full:
                found += [*self.writer.close(), self._end(delta.finish), {"type": "message_stop"}]
        return found

    def _start(self) -> Event:
        message: Event = {
            "id": self.answer.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**self._usage(), "output_tokens": 0},
        }
        return {"type": "message_start", "message": message}

    def _end(self, finish: Finish | None) -> Event:
        reason, stop = self._stop(finish)
        usage = {**self._usage(), "output_tokens": self.answer.usage.completion}
        return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": stop}, "usage": usage}

    def _stop(self, finish: Finish | None) -> tuple[str, str | None]:
        if self.writer.full or finish is None:
            return "tool_use", None
        if finish.reason == "length":
            return "model_context_window_exceeded" if self.answer.fitted else "max_tokens", None
        if finish.reason == "abort":  # an operator ended it; sent back as it is, it is continued
            return "pause_turn", None
        if isinstance(finish.stop, str):
            return "stop_sequence", finish.stop
        return "tool_use" if self.writer.called else "end_turn", None

    def _usage(self) -> dict[str, Any]:
        """Return the prompt's tokens; those from the prefix cache count apart."""
        usage = self.answer.usage
        return {
            "input_tokens": usage.prompt - usage.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached,
        }


def encode(event: Event) -> bytes:
    """Return an event as it goes over the wire."""
    kind: str = event["type"]
    return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"
