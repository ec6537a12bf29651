"""From items to the messages of a chat template."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from core.server.openai.responses.items import Item

Message = dict[str, Any]

_SYSTEM_ROLES = ("system", "developer")


def to_messages(instructions: str | None, items: Iterable[Item]) -> list[Message]:
    """Return the conversation, in the form that clients of chat completions send.

    What the assistant did in one turn (thinking, text, calls) is several items but one message. Instructions and the
    system messages right behind them are one message too: many templates read only a first one.
    """
    builder = _Builder()
    if instructions is not None:
        builder.say("system", instructions)
    for item in items:
        builder.add(item)
    return builder.finish()


class _Builder:
    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._names: dict[str, str] = {}

    def add(self, item: Item) -> None:
        kind = item["type"]
        if kind == "message":
            self._message(item)
        elif kind == "reasoning":
            self._think(item)
        elif kind == "function_call":
            self._call(item)
        else:
            self._result(item)

    def say(self, role: str, text: str) -> None:
        if role == "system" and len(self._messages) == 1 and self._messages[0]["role"] == "system":
            self._messages[0]["content"] += f"\n\n{text}"
        else:
            self._messages.append({"role": role, "content": text})

    def finish(self) -> list[Message]:
        for message in self._messages:
            message.setdefault("content", None if "tool_calls" in message else "")
        return self._messages

    def _message(self, item: Item) -> None:
        text = "\n".join(part["text"] for part in item["content"])
        if item["role"] == "assistant":
            self._turn("content")["content"] = text
        else:
            self.say("system" if item["role"] in _SYSTEM_ROLES else item["role"], text)

    def _think(self, item: Item) -> None:
        text = "".join(part["text"] for part in item["content"]) or "\n".join(part["text"] for part in item["summary"])
        if text:
            turn = self._turn("content", "tool_calls")
            turn["reasoning"] = turn.get("reasoning", "") + text

    def _call(self, item: Item) -> None:
        self._names[item["call_id"]] = item["name"]
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        self._turn().setdefault("tool_calls", []).append(call)

    def _result(self, item: Item) -> None:
        message = {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
        name = self._names.get(item["call_id"])
        self._messages.append(message if name is None else {**message, "name": name})

    def _turn(self, *ends: str) -> Message:
        """Return the assistant's last message; a new one if it already has a field of `ends`."""
        last = self._messages[-1] if self._messages else None
        if last is None or last["role"] != "assistant" or any(name in last for name in ends):
            last = {"role": "assistant"}
            self._messages.append(last)
        return last
