"""Chat answers: deltas of messages, and messages folded from deltas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.api import Answer, Delta, Reasoning, Text, ToolArguments, ToolStart
from core.api.parsers import ParseEvent
from core_plugin_openai.job import Piece
from core_plugin_openai.logprobs import chat_logprobs, prompt_logprobs
from core_plugin_openai.shown import EVERYTHING, Shown

REASONING_NAMES = ("reasoning", "reasoning_content")
"""Thinking is given under both of its names."""


class ChatFormat:
    """`Format` of chat completions.

    Args:
        answer: What is shown.
        scored: With log-probabilities.
        return_ids: With token ids.
        echo: Text in front of every answer.
        shown: What of the answer the client wants to see.
    """

    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def __init__(
        self,
        answer: Answer,
        *,
        scored: bool = False,
        return_ids: bool = False,
        echo: str = "",
        shown: Shown = EVERYTHING,
    ) -> None:
        self._answer = answer
        self._scored = scored
        self._plain = not scored and not return_ids
        self._return_ids = return_ids
        self._echo = echo
        self._shown = shown
        self._called: dict[int, bool] = {}
        self._folds: dict[int, Fold] = {}

    def pieces(self, delta: Delta) -> list[Piece]:
        """Return the pieces of a delta; a sequence's first is the role alone."""
        index, events = delta.index, delta.events
        if index in self._called:
            if self._plain and delta.finish is None and len(events) == 1 and type(events[0]) is Text:
                said = {"content": events[0].text}  # nearly every delta of nearly every stream
                return [{"index": index, "delta": said, "logprobs": None, "finish_reason": None}]
            piece = self._piece(delta)
            return [] if piece is None else [piece]
        self._called[index] = False
        first, piece = _piece(index, {"role": "assistant", "content": self._echo}), self._piece(delta)
        return [first] if piece is None else [first, piece]

    def head(self) -> dict[str, Any]:
        """Return prompt ids and log-probabilities, if asked for."""
        head: dict[str, Any] = {}
        prompt = self._answer.prompts.get(0)
        if prompt is None:
            return head
        if self._return_ids:
            head["prompt_token_ids"] = prompt.ids
        if self._shown.prompt_text:
            head["prompt_text"] = prompt.text
        if scores := prompt.scores:
            head["prompt_logprobs"] = prompt_logprobs(scores)
        return head

    def fold(self, piece: Piece) -> None:
        """Add a delta to its message."""
        index = piece["index"]
        if index not in self._folds:
            self._folds[index] = Fold()
        self._folds[index].add(piece)

    def choices(self) -> list[dict[str, Any]]:
        """Return the messages, by index."""
        return [{"index": index, **self._folds[index].choice()} for index in sorted(self._folds)]

    def _piece(self, delta: Delta) -> Piece | None:
        said = self._message(delta.index, self._shown.events(delta.events))
        scores = None
        if self._scored and delta.scores:
            scores = {"content": chat_logprobs(delta.scores, as_ids=self._shown.tokens_as_ids)}
        ids = delta.token_ids if self._return_ids else None
        finish = delta.finish
        if not said and finish is None and scores is None and not ids:
            return None
        piece = _piece(delta.index, said, scores)
        if finish is not None:
            reason = finish.reason
            piece["finish_reason"] = "tool_calls" if self._called[delta.index] and reason == "stop" else reason
            piece["stop_reason"] = finish.stop
            piece.update(finish.told)
        if ids is not None:
            piece["token_ids"] = ids
        return piece

    def _message(self, index: int, events: Sequence[ParseEvent]) -> dict[str, Any]:
        """Return the delta of a message; empty if nothing visible has come."""
        delta: dict[str, Any] = {}
        calls: dict[int, dict[str, Any]] = {}
        for event in events:
            if isinstance(event, Text):
                delta["content"] = delta.get("content", "") + event.text
            elif isinstance(event, Reasoning):
                delta.update(dict.fromkeys(REASONING_NAMES, delta.get("reasoning", "") + event.text))
            elif isinstance(event, ToolStart):
                self._called[index] = True
                calls[event.index] = _call(event, self._answer.call_id(event.name, event.index))
            elif isinstance(event, ToolArguments):
                call = calls.setdefault(event.index, {"index": event.index, "function": {"arguments": ""}})
                call["function"]["arguments"] += event.json
        if calls:
            delta["tool_calls"] = list(calls.values())
        return delta


_GROWING = frozenset({"index", "delta", "logprobs", "token_ids"})
"""Members of a piece that are added to those of its choice, or are the same; the others come with its end."""


class Fold:
    """One message, growing."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._logprobs: list[dict[str, Any]] = []
        self._scored = False
        self._ids: list[int] | None = None
        self._end: dict[str, Any] = {"finish_reason": None, "stop_reason": None}

    def add(self, piece: Piece) -> None:
        """Add a delta."""
        delta = piece["delta"]
        self._content.append(delta.get("content", ""))
        self._reasoning.append(delta.get("reasoning", ""))
        for call in delta.get("tool_calls", ()):
            self._add_call(call)
        if piece["logprobs"] is not None:
            self._scored = True
            self._logprobs.extend(piece["logprobs"]["content"])
        if "token_ids" in piece:
            self._ids = [] if self._ids is None else self._ids
            self._ids.extend(piece["token_ids"])
        if piece["finish_reason"] is not None:
            self._end = {name: value for name, value in piece.items() if name not in _GROWING}

    def choice(self) -> dict[str, Any]:
        """Return the choice without its index."""
        content, reasoning = "".join(self._content), "".join(self._reasoning)
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if reasoning:
            message.update(dict.fromkeys(REASONING_NAMES, reasoning))
        if self._calls:
            message["content"] = content or None
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        logprobs = {"content": self._logprobs} if self._scored else None
        ids = {} if self._ids is None else {"token_ids": self._ids}
        return {"message": message, "logprobs": logprobs, **self._end, **ids}

    def _add_call(self, call: dict[str, Any]) -> None:
        known = self._calls.get(call["index"])
        if known is None:
            function = dict(call["function"])
            self._calls[call["index"]] = {"id": call["id"], "type": "function", "function": function}
        else:
            known["function"]["arguments"] += call["function"]["arguments"]


def _piece(index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None = None) -> Piece:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}


def _call(event: ToolStart, call_id: str) -> dict[str, Any]:
    return {
        "index": event.index,
        "id": call_id,
        "type": "function",
        "function": {"name": event.name, "arguments": ""},
    }
