"""Content blocks: the events that a stream sends, and the message folded from those very events."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import orjson

from core.api.parsers import ParseEvent, Reasoning, Text, ToolArguments, ToolEnd, ToolStart

Event = dict[str, Any]


class BlockWriter:
    """Turns what a parser saw into block events; one block is open at a time.

    Args:
        show_thinking: False keeps the thinking to ourselves; its block is there, empty.
        one_call: The message is over with its first call.

    Attributes:
        called: Whether a tool was called.
        full: The only call that may be made has been made; nothing more is written.
    """

    def __init__(self, *, show_thinking: bool = True, one_call: bool = False) -> None:
        self.called = self.full = False
        self._one_call = one_call
        self._shows = show_thinking
        self._index = -1
        self._open: str | None = None
        self._blank = ""

    def write(self, events: Sequence[ParseEvent]) -> list[Event]:
        """Return the block events of what is new."""
        found: list[Event] = []
        for event in events:
            if self.full:
                break
            if isinstance(event, Text):
                found += self._text(event.text)
            elif isinstance(event, Reasoning):
                found += self._thinking(event.text)
            elif isinstance(event, ToolStart):
                found += self._tool(event.name)
            elif isinstance(event, ToolArguments):
                found.append(self._delta({"type": "input_json_delta", "partial_json": event.json}))
            elif isinstance(event, ToolEnd):
                found += self.close()
                self.full = self._one_call
        return found

    def close(self) -> list[Event]:
        """End the open block, if there is one. Text that was nothing but white space is dropped."""
        self._blank = ""
        if self._open is None:
            return []
        found: list[Event] = []
        if self._open == "thinking":
            found.append(self._delta({"type": "signature_delta", "signature": uuid.uuid4().hex}))
        self._open = None
        return [*found, {"type": "content_block_stop", "index": self._index}]

    def _text(self, text: str) -> list[Event]:
        if self._open == "text":
            return [self._delta({"type": "text_delta", "text": text})]
        # What separates blocks in a model's own format is no block: clients may not send an empty one back.
        if not text.strip():
            self._blank += text
            return []
        text, found = self._blank + text, self.close()
        return [
            *found,
            self._start("text", {"type": "text", "text": ""}),
            self._delta({"type": "text_delta", "text": text}),
        ]

    def _thinking(self, text: str) -> list[Event]:
        found: list[Event] = []
        if self._open != "thinking":
            found = [*self.close(), self._start("thinking", {"type": "thinking", "thinking": "", "signature": ""})]
        if self._shows and text:
            found.append(self._delta({"type": "thinking_delta", "thinking": text}))
        return found

    def _tool(self, name: str) -> list[Event]:
        self.called = True
        found = self.close()
        block = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:24]}", "name": name, "input": {}}
        return [*found, self._start("tool_use", block)]

    def _start(self, kind: str, block: dict[str, Any]) -> Event:
        self._index += 1
        self._open = kind
        return {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


class MessageFold:
    """A whole message, growing by events."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._pieces: list[str] = []

    def add(self, event: Event) -> None:
        """Take in an event of the stream."""
        kind = event["type"]
        if kind == "message_start":
            self._message = {**event["message"], "content": []}
        elif kind == "content_block_start":
            self._pieces = []
            self._message["content"].append(dict(event["content_block"]))
        elif kind == "content_block_delta":
            self._delta(event["delta"])
        elif kind == "content_block_stop":
            self._stop(self._message["content"][-1])
        elif kind == "message_delta":
            self._message |= event["delta"]
            self._message["usage"] = self._message["usage"] | event["usage"]

    def message(self) -> dict[str, Any]:
        """Return the message as it stands."""
        return self._message

    def _delta(self, delta: dict[str, Any]) -> None:
        if delta["type"] == "signature_delta":
            self._message["content"][-1]["signature"] = delta["signature"]
        else:
            self._pieces.append(next(value for name, value in delta.items() if name != "type"))

    def _stop(self, block: dict[str, Any]) -> None:
        text = "".join(self._pieces)
        if block["type"] == "tool_use":
            block["input"] = orjson.loads(text or "{}")
        else:
            block[block["type"]] = text
