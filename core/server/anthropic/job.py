"""One answer of the Messages API. Whole messages are folded from the very events that a stream sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from core.frontend.answering.reader import AnswerReader
from core.frontend.results import CompletionOutput, RequestOutput
from core.server.anthropic.blocks import BlockWriter, Event, MessageFold
from core.server.openai.generation import Generation
from core.server.outlet import Outlet


@dataclass(slots=True)
class MessageJob:
    """A generation of one sequence, as a message.

    Attributes:
        cut: The limit of the request is what the model's length leaves, not what the client asked for.
    """

    generation: Generation
    reader: AnswerReader
    writer: BlockWriter
    cut: bool = False

    async def collect(self) -> bytes:
        """Return the whole message as JSON."""
        fold, first = MessageFold(), True

        def take(_: int, output: RequestOutput) -> bool:
            nonlocal first
            for event in self._events(output, first=first):
                fold.add(event)
            first = False
            return not self.writer.full

        await self.generation.run(take)
        return orjson.dumps(fold.message())

    async def stream(self, outlet: Outlet) -> None:
        """Put server-sent events into an outlet; what one engine output brings is put at once."""
        first = True

        def take(_: int, output: RequestOutput) -> bool:
            nonlocal first
            events, first = self._events(output, first=first), False
            room = not events or outlet.put(b"".join(map(encode, events)))
            return room and not self.writer.full

        async def more() -> bool:
            if not self.writer.full:  # else nothing more is generated while the client catches up
                await outlet.room()
            return not self.writer.full

        await self.generation.run(take, more)

    def _events(self, output: RequestOutput, *, first: bool) -> list[Event]:
        begin: list[Event] = [self._start(), {"type": "ping"}] if first else []
        return begin + self._output(output)

    def _output(self, output: RequestOutput) -> list[Event]:
        found: list[Event] = []
        for sequence in output.outputs:
            found += self.writer.write(self.reader.read(sequence))
            if sequence.finish_reason is not None or self.writer.full:
                found += [*self.writer.close(), self._end(sequence), {"type": "message_stop"}]
        return found

    def _start(self) -> Event:
        message: Event = {
            "id": self.generation.id,
            "type": "message",
            "role": "assistant",
            "model": self.generation.state.llm.model_name,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**self._usage(), "output_tokens": 0},
        }
        return {"type": "message_start", "message": message}

    def _end(self, sequence: CompletionOutput) -> Event:
        reason, stop = self._stop(sequence)
        usage = {**self._usage(), "output_tokens": self.generation.usage.completion}
        return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": stop}, "usage": usage}

    def _stop(self, sequence: CompletionOutput) -> tuple[str, str | None]:
        if self.writer.full:
            return "tool_use", None
        if sequence.finish_reason == "length":
            return "model_context_window_exceeded" if self.cut else "max_tokens", None
        if sequence.finish_reason == "abort":  # an operator ended it; sent back as it is, it is continued
            return "pause_turn", None
        if isinstance(sequence.stop_reason, str):
            return "stop_sequence", sequence.stop_reason
        return "tool_use" if self.writer.called else "end_turn", None

    def _usage(self) -> dict[str, Any]:
        """Return the prompt's tokens; those from the prefix cache count apart."""
        usage = self.generation.usage
        return {
            "input_tokens": usage.prompt - usage.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached,
        }


def encode(event: Event) -> bytes:
    """Return an event as it goes over the wire."""
    kind: str = event["type"]
    return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"
