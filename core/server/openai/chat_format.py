"""Chat answers: deltas of messages, and messages folded from deltas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from core.api.parsers import ParseEvent, Reasoning, Text, ToolArguments, ToolStart
from core.api.tokenizer import Tokenizer
from core.frontend.answering.chat import ChatAnswer
from core.frontend.answering.reader import AnswerReader
from core.frontend.messages import REASONING_NAMES
from core.frontend.prompts import PromptIds
from core.frontend.results import CompletionOutput, RequestOutput
from core.server.logprobs import Position, ShownTokens, chat_logprobs, prompt_logprobs
from core.server.openai.job import Piece
from core.server.openai.shown import EVERYTHING, Shown
from core.server.openai.told import told


class ChatFormat:
    """`Format` of chat completions.

    Args:
        top_logprobs: Alternatives per token, or None for no log-probabilities.
        answer: Reads tool calls and reasoning; None passes the text on as it is.
        echo: Text in front of every answer.
        shown: What of the answer the client wants to see.
    """

    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        top_logprobs: int | None = None,
        return_ids: bool = False,
        answer: ChatAnswer | None = None,
        echo: str = "",
        shown: Shown = EVERYTHING,
    ) -> None:
        self._tokenizer = tokenizer
        self._top = top_logprobs
        self._return_ids = return_ids
        self._answer = answer
        self._echo = echo
        self._shown = shown
        self._tokens = ShownTokens(tokenizer, as_ids=shown.tokens_as_ids, skip_special=not shown.special_tokens)
        self._deltas: dict[int, Deltas] = {}
        self._folds: dict[int, Fold] = {}
        self._prompt_ids: PromptIds | None = None
        self._scores: list[Position | None] | None = None

    def pieces(self, prompt: int, output: RequestOutput) -> list[Piece]:
        """Return the deltas; a sequence's first is the role alone."""
        self._prompt_ids = output.prompt_ids
        if output.prompt_logprobs is not None:
            self._scores = output.prompt_logprobs
        found: list[Piece] = []
        for sequence in output.outputs:
            deltas = self._deltas.get(sequence.index)
            if deltas is None:
                deltas = self._deltas[sequence.index] = self._open()
                found.append(_piece(sequence.index, {"role": "assistant", "content": self._echo}))
            piece = self._piece(sequence, deltas)
            if piece is not None:
                found.append(piece)
        return found

    def head(self) -> dict[str, Any]:
        """Return prompt ids and log-probabilities, if asked for."""
        head: dict[str, Any] = {}
        if self._return_ids and self._prompt_ids is not None:
            head["prompt_token_ids"] = self._prompt_ids.tolist()
        if self._shown.prompt_text and self._prompt_ids is not None:
            head["prompt_text"] = self._tokenizer.decode(self._prompt_ids, skip_special_tokens=False)
        if self._scores is not None:
            head["prompt_logprobs"] = prompt_logprobs(self._scores)
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

    def _open(self) -> Deltas:
        answer = self._answer
        return Deltas() if answer is None else Deltas(answer.reader(), answer.call_id, self._shown)

    def _piece(self, sequence: CompletionOutput, deltas: Deltas) -> Piece | None:
        delta = deltas.push(sequence)
        reason = sequence.finish_reason
        scores = None
        if self._top is not None and sequence.logprobs:
            scores = {"content": chat_logprobs(sequence.token_ids, sequence.logprobs, self._tokens, self._top)}
        ids = sequence.token_ids if self._return_ids else None
        if not delta and reason is None and scores is None and not ids:
            return None
        piece = _piece(sequence.index, delta, scores)
        if reason is not None:
            piece["finish_reason"] = "tool_calls" if deltas.called and reason == "stop" else reason
            piece["stop_reason"] = sequence.stop_reason
            piece.update(told(sequence))
        if ids is not None:
            piece["token_ids"] = ids
        return piece


class Deltas:
    """Turns one sequence's new text into message deltas.

    Args:
        reader: None passes the text on as it is.
        call_id: Makes a call's id from the function's name and the call's number in this answer.

    Attributes:
        called: Whether a tool call was seen.
    """

    def __init__(
        self,
        reader: AnswerReader | None = None,
        call_id: Callable[[str, int], str] | None = None,
        shown: Shown = EVERYTHING,
    ) -> None:
        self._reader, self._call_id = reader, call_id
        self._shown = shown
        self.called = False

    def push(self, sequence: CompletionOutput) -> dict[str, Any]:
        """Return the delta of an output; empty if it brings nothing visible."""
        if self._reader is None:
            return {"content": sequence.text} if sequence.text else {}
        return self._delta(self._shown.events(self._reader.read(sequence)))

    def _delta(self, events: Sequence[ParseEvent]) -> dict[str, Any]:
        delta: dict[str, Any] = {}
        calls: dict[int, dict[str, Any]] = {}
        for event in events:
            if isinstance(event, Text):
                delta["content"] = delta.get("content", "") + event.text
            elif isinstance(event, Reasoning):
                delta.update(dict.fromkeys(REASONING_NAMES, delta.get("reasoning", "") + event.text))
            elif isinstance(event, ToolStart) and self._call_id is not None:
                self.called = True
                calls[event.index] = _call(event, self._call_id(event.name, event.index))
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
