"""One answer as chunks, and the whole answer folded from those very chunks."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from core.api import Answer, Delta, Outlet, Text, ToolArguments, ToolStart
from core.api.parsers import ParseEvent

Choice = dict[str, Any]
_REASONS = {"abort": "stop"}


class ChatJob:
    """A generation of one or several choices.

    Args:
        model: What the answer says of its model.
        usage: The stream tells, in a chunk of its own, how many tokens there were.
    """

    def __init__(self, answer: Answer, model: str, *, usage: bool = False) -> None:
        self._answer, self._usage = answer, usage
        self._base = {"id": answer.id, "created": int(time.time()), "model": model}
        self._called: dict[int, bool] = {}

    async def collect(self) -> bytes:
        """Return the whole answer as JSON."""
        whole: dict[int, Choice] = {}

        def take(deltas: Sequence[Delta]) -> bool:
            for choice in self._choices(deltas):
                _fold(whole, choice)
            return True

        await self._answer.run(take)
        choices = [whole[index] for index in sorted(whole)]
        return json.dumps(
            {**self._base, "object": "chat.completion", "choices": choices, "usage": self._tokens()}
        ).encode()

    async def stream(self, outlet: Outlet) -> None:
        """Put the chunks into an outlet; what a step brings is put at once."""

        def take(deltas: Sequence[Delta]) -> bool:
            chunks = [self._chunk([choice]) for choice in self._choices(deltas)]
            return not chunks or outlet.put(b"".join(chunks))

        async def more() -> bool:
            await outlet.room()
            return True

        await self._answer.run(take, more)
        if self._usage:
            outlet.put(self._chunk([], usage=self._tokens()))

    def _choices(self, deltas: Sequence[Delta]) -> list[Choice]:
        found: list[Choice] = []
        for delta in deltas:
            said: dict[str, Any] = {}
            if delta.index not in self._called:
                self._called[delta.index] = False
                said = {"role": "assistant", "content": ""}
            for event in delta.events:
                self._say(delta.index, event, said)
            if said or delta.finish is not None:
                reason = None if delta.finish is None else self._reason(delta.index, delta.finish.reason)
                found.append({"index": delta.index, "delta": said, "finish_reason": reason})
        return found

    def _say(self, index: int, event: ParseEvent, said: dict[str, Any]) -> None:
        """Add to a delta what an event says; thinking is not shown, as on Azure."""
        if isinstance(event, Text):
            said["content"] = said.get("content", "") + event.text
        elif isinstance(event, ToolStart):
            self._called[index] = True
            call = {"index": event.index, "id": self._answer.call_id(event.name, event.index), "type": "function"}
            said.setdefault("tool_calls", []).append({**call, "function": {"name": event.name, "arguments": ""}})
        elif isinstance(event, ToolArguments):
            calls = said.setdefault("tool_calls", [])
            if not calls or calls[-1]["index"] != event.index:
                calls.append({"index": event.index, "function": {"arguments": ""}})
            calls[-1]["function"]["arguments"] += event.json

    def _reason(self, index: int, reason: str) -> str:
        return "tool_calls" if self._called[index] and reason == "stop" else _REASONS.get(reason, reason)

    def _chunk(self, choices: list[Choice], **more: Any) -> bytes:
        chunk = {**self._base, "object": "chat.completion.chunk", "choices": choices, **more}
        return b"data: " + json.dumps(chunk).encode() + b"\n\n"

    def _tokens(self) -> dict[str, int]:
        usage = self._answer.usage
        tokens = {"prompt_tokens": usage.prompt, "completion_tokens": usage.completion}
        return {**tokens, "total_tokens": usage.prompt + usage.completion}


def _fold(whole: dict[int, Choice], choice: Choice) -> None:
    """Add a choice of a chunk to that of the whole answer."""
    index, delta = choice["index"], choice["delta"]
    message = whole.setdefault(
        index, {"index": index, "message": {"role": "assistant", "content": ""}, "finish_reason": None}
    )["message"]
    message["content"] += delta.get("content", "")
    for call in delta.get("tool_calls", ()):
        calls = message.setdefault("tool_calls", [])
        if call["index"] == len(calls):
            calls.append({name: value for name, value in call.items() if name != "index"})
        else:
            calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    whole[index]["finish_reason"] = choice["finish_reason"] or whole[index]["finish_reason"]
