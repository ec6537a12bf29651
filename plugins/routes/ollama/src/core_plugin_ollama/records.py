"""From the chunks of an answer to Ollama's records: one JSON object per line, the last with reason and figures."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from core.api import RequestError

Record = dict[str, Any]
Shape = Callable[["Part"], Record]
"""Where a kind of record has text, thinking and calls."""


@dataclass(slots=True)
class Part:
    """What is new in an answer, or all of it."""

    text: str = ""
    thinking: str = ""
    calls: list[Record] = field(default_factory=list)
    logprobs: list[Record] = field(default_factory=list)

    def add(self, other: Part) -> None:
        """Append another part."""
        self.text += other.text
        self.thinking += other.thinking
        self.calls += other.calls
        self.logprobs += other.logprobs

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.text or self.thinking or self.calls or self.logprobs)


def as_message(part: Part) -> Record:
    """Return the fields of `/api/chat`."""
    thinking = {"thinking": part.thinking} if part.thinking else {}
    calls = {"tool_calls": part.calls} if part.calls else {}
    return {"message": {"role": "assistant", "content": part.text, **thinking, **calls}}


def as_response(part: Part) -> Record:
    """Return the fields of `/api/generate`."""
    return {"response": part.text, **({"thinking": part.thinking} if part.thinking else {})}


class Answer:
    """One answer: chunks come in, records go out.

    Args:
        model: What the client calls the model.
        shape: `as_message` or `as_response`.
    """

    def __init__(self, model: str, shape: Shape) -> None:
        self._model, self._shape = model, shape
        self._reason = "stop"
        self._figures: Record = {}
        self._call: Record | None = None

    async def lines(self, chunks: AsyncGenerator[Record, None]) -> AsyncGenerator[bytes, None]:
        """Yield the records as lines. What goes wrong after the first of them is a line too."""
        begun = False
        try:
            async with aclosing(chunks):
                async for part in self._parts(chunks):
                    yield _line(self._record(part, done=False))
                    begun = True
        except RequestError as error:
            if not begun:
                raise
            yield _line({"error": error.message})
            return
        yield _line(self._last(Part()))

    async def whole(self, chunks: AsyncGenerator[Record, None]) -> bytes:
        """Return the whole answer as one record."""
        everything = Part()
        async with aclosing(chunks):
            async for part in self._parts(chunks):
                everything.add(part)
        return json.dumps(self._last(everything)).encode()

    def loaded(self, reason: str) -> Record:
        """Return the record of a request that asks for nothing but that the model be there, or not."""
        return {**self._record(Part(), done=True), "done_reason": reason}

    async def _parts(self, chunks: AsyncIterator[Record]) -> AsyncIterator[Part]:
        async for chunk in chunks:
            if "timings" in chunk:
                self._figures = figures(chunk["usage"], chunk["timings"])
            for choice in chunk["choices"]:
                part = self._part(choice)
                if not part.empty:
                    yield part

    def _part(self, choice: Mapping[str, Any]) -> Part:
        delta = choice.get("delta") or {"content": choice.get("text", "")}
        part = Part(delta.get("content") or "", delta.get("reasoning") or "")
        for call in delta.get("tool_calls", ()):
            self._take(call, part)
        reason = choice["finish_reason"]
        if reason is not None:
            self._reason = "length" if reason == "length" else "stop"
            self._end_call(part)
        part.logprobs = [_logprob(one) for one in (choice.get("logprobs") or {}).get("content") or ()]
        return part

    def _take(self, call: Mapping[str, Any], part: Part) -> None:
        """Take in a piece of a call; a call is shown once it is whole."""
        if self._call is None or call["index"] != self._call["index"]:
            self._end_call(part)
            self._call = {"index": call["index"], "id": call["id"], "name": call["function"]["name"], "arguments": ""}
        self._call["arguments"] += call["function"].get("arguments", "")

    def _end_call(self, part: Part) -> None:
        if self._call is not None:
            call, self._call = self._call, None
            function = {"index": call["index"], "name": call["name"], "arguments": _object(call["arguments"])}
            part.calls.append({"id": call["id"], "function": function})

    def _record(self, part: Part, *, done: bool) -> Record:
        logprobs = {"logprobs": part.logprobs} if part.logprobs else {}
        return {"model": self._model, "created_at": now(), **self._shape(part), **logprobs, "done": done}

    def _last(self, part: Part) -> Record:
        return {**self._record(part, done=True), "done_reason": self._reason, **self._figures}


def figures(usage: Mapping[str, Any], timings: Mapping[str, float]) -> Record:
    """Return counts, and durations in nanoseconds; the model is loaded before any request comes."""
    first, total = timings["first_token_seconds"], timings["total_seconds"]
    return {
        "total_duration": nanoseconds(total),
        "load_duration": 0,
        "prompt_eval_count": usage["prompt_tokens"],
        "prompt_eval_duration": nanoseconds(first),
        "eval_count": usage["completion_tokens"],
        "eval_duration": nanoseconds(total - first),
    }


def nanoseconds(seconds: float) -> int:
    """Return a duration as Ollama writes it."""
    return int(seconds * 1e9)


def moment(seconds: float) -> str:
    """Return a time since 1970 as Ollama writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def now() -> str:
    """Return the time as Ollama writes it."""
    return moment(datetime.now(UTC).timestamp())


def _line(record: Record) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _object(text: str) -> Record:
    """Return a call's arguments; what is no object, because the answer was cut, is kept as it is."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"unparsed": text}


def _logprob(entry: Mapping[str, Any]) -> Record:
    return {
        **_token(entry),
        **({"top_logprobs": [_token(one) for one in entry["top_logprobs"]]} if entry["top_logprobs"] else {}),
    }


def _token(entry: Mapping[str, Any]) -> Record:
    return {name: entry[name] for name in ("token", "logprob", "bytes")}
