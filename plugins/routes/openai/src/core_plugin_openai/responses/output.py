"""Output items while they are written: what each sends when it opens, grows and ends.

Events are plain objects without `sequence_number`, which the log gives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from core_plugin_openai.responses.items import Item, new_id

Event = dict[str, Any]
Score = dict[str, Any]
"""A token's entry of `logprobs`."""

COMPLETED, INCOMPLETE = "completed", "incomplete"


class OpenItem(Protocol):
    """An item that grows.

    Attributes:
        index: Its place in the answer's output.
    """

    index: int

    def opened(self) -> list[Event]:
        """Return the events that announce it."""
        ...

    def grown(self, text: str, scores: Sequence[Score] = ()) -> Event:
        """Add text and return the event that says so."""
        ...

    def ended(self, status: str) -> list[Event]:
        """Return the events that complete it; the last one holds the whole item."""
        ...


class OpenCall(Protocol):
    """A call whose arguments grow.

    Attributes:
        index: Its place in the answer's output.
    """

    index: int

    def opened(self) -> list[Event]:
        """Return the events that announce it."""
        ...

    def grown(self, text: str) -> list[Event]:
        """Add to the arguments and return the events that say so."""
        ...

    def ended(self, status: str) -> list[Event]:
        """Return the events of arguments that are complete, or have been cut off."""
        ...


class MessageItem:
    """Visible text."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._item: Item = {"id": new_id("msg"), "type": "message", "role": "assistant"}
        self._text: list[str] = []
        self._scores: list[Score] = []

    def opened(self) -> list[Event]:
        """Return the events that announce it."""
        item = {**self._item, "status": "in_progress", "content": []}
        return [added_event(self.index, item), self._part_event("added", _output_text("", []))]

    def grown(self, text: str, scores: Sequence[Score] = ()) -> Event:
        """Add text, with its tokens' log-probabilities."""
        self._text.append(text)
        self._scores.extend(scores)
        return {"type": "response.output_text.delta", **self._place(), "delta": text, "logprobs": list(scores)}

    def ended(self, status: str) -> list[Event]:
        """Return the events that complete it."""
        part = _output_text("".join(self._text), self._scores)
        text = {"text": part["text"], "logprobs": part["logprobs"]}
        return [
            {"type": "response.output_text.done", **self._place(), **text},
            self._part_event("done", part),
            done_event(self.index, {**self._item, "status": status, "content": [part]}),
        ]

    def _place(self) -> Event:
        return {"item_id": self._item["id"], "output_index": self.index, "content_index": 0}

    def _part_event(self, what: str, part: Item) -> Event:
        return {"type": f"response.content_part.{what}", **self._place(), "part": part}


class ReasoningItem:
    """Thinking, in the clear."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._item: Item = {"id": new_id("rs"), "type": "reasoning", "summary": []}
        self._text: list[str] = []

    def opened(self) -> list[Event]:
        """Return the events that announce it."""
        item = {**self._item, "status": "in_progress", "content": []}
        return [added_event(self.index, item), self._part_event("added", "")]

    def grown(self, text: str, scores: Sequence[Score] = ()) -> Event:
        """Add text; log-probabilities have no place in thinking."""
        self._text.append(text)
        return {"type": "response.reasoning_text.delta", **self._place(), "delta": text}

    def ended(self, status: str) -> list[Event]:
        """Return the events that complete it."""
        text = "".join(self._text)
        return [
            {"type": "response.reasoning_text.done", **self._place(), "text": text},
            self._part_event("done", text),
            done_event(self.index, {**self._item, "status": status, "content": [_reasoning_text(text)]}),
        ]

    def _place(self) -> Event:
        return {"item_id": self._item["id"], "output_index": self.index, "content_index": 0}

    def _part_event(self, what: str, text: str) -> Event:
        return {"type": f"response.content_part.{what}", **self._place(), "part": _reasoning_text(text)}


class CallItem:
    """A call of one of the caller's functions."""

    def __init__(self, index: int, name: str, call_id: str) -> None:
        self.index = index
        self._item: Item = {"id": new_id("fc"), "type": "function_call", "call_id": call_id, "name": name}
        self._text: list[str] = []

    def opened(self) -> list[Event]:
        """Return the event that announces it."""
        return [added_event(self.index, {**self._item, "status": "in_progress", "arguments": ""})]

    def grown(self, text: str) -> list[Event]:
        """Add to the arguments."""
        self._text.append(text)
        return [{"type": "response.function_call_arguments.delta", **self._place(), "delta": text}]

    def ended(self, status: str) -> list[Event]:
        """Return the events that complete it."""
        arguments = "".join(self._text)
        return [
            {"type": "response.function_call_arguments.done", **self._place(), "arguments": arguments},
            done_event(self.index, {**self._item, "status": status, "arguments": arguments}),
        ]

    def _place(self) -> Event:
        return {"item_id": self._item["id"], "output_index": self.index}


def added_event(index: int, item: Item) -> Event:
    """Return the event that announces an item."""
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done_event(index: int, item: Item) -> Event:
    """Return the event that completes an item."""
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def _output_text(text: str, scores: list[Score]) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": scores}


def _reasoning_text(text: str) -> Item:
    return {"type": "reasoning_text", "text": text}
