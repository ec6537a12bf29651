"""From an answer to Ollama's records: one JSON object per line, the last with reason and figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from core.api import Answer, Delta, Outlet, Reasoning, Text, Timings, TokenScore, ToolArguments, ToolStart, Usage

Record = dict[str, Any]
Shape = Callable[["Part"], Record]
"""Where a kind of record has text, thinking and calls."""


@dataclass(slots=True)
class Part:
    """New part of an answer, or all of it."""

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


class Records:
    """The records of one answer.

    Args:
        model: What the client calls the model.
        shape: `as_message` or `as_response`.
    """

    def __init__(self, model: str, shape: Shape) -> None:
        self._model, self._shape = model, shape

    def line(self, part: Part) -> bytes:
        """Return the record of a part of the answer."""
        return line(self._record(part, done=False))

    def loaded(self, reason: str) -> Record:
        """Return the record of a request that asks for nothing but that the model be there, or not."""
        return {**self._record(Part(), done=True), "done_reason": reason}

    def last(self, part: Part, answer: Answer, reason: str) -> Record:
        """Return the record of an answer that has ended, with its figures."""
        return {**self._record(part, done=True), "done_reason": reason, **figures(answer.usage, answer.timings)}

    def _record(self, part: Part, *, done: bool) -> Record:
        logprobs = {"logprobs": part.logprobs} if part.logprobs else {}
        return {"model": self._model, "created_at": now(), **self._shape(part), **logprobs, "done": done}


class RecordJob:
    """Answers with records: one, or a line for each part and one at the end."""

    def __init__(self, answer: Answer, records: Records) -> None:
        self._answer, self._records = answer, records
        self._reason = "stop"
        self._call: Record | None = None

    async def collect(self) -> bytes:
        """Return the whole answer as one record."""
        everything = Part()

        def take(deltas: Sequence[Delta]) -> bool:
            for delta in deltas:
                everything.add(self._part(delta))
            return True

        await self._answer.run(take)
        return json.dumps(self._records.last(everything, self._answer, self._reason)).encode()

    async def stream(self, outlet: Outlet) -> None:
        """Put the records into an outlet, as lines."""

        def take(deltas: Sequence[Delta]) -> bool:
            parts = [part for delta in deltas if not (part := self._part(delta)).empty]
            return not parts or outlet.put(b"".join(map(self._records.line, parts)))

        async def more() -> bool:
            await outlet.room()
            return True

        await self._answer.run(take, more)
        outlet.put(line(self._records.last(Part(), self._answer, self._reason)))

    def _part(self, delta: Delta) -> Part:
        part = Part(logprobs=[_scored(score) for score in delta.scores])
        for event in delta.events:
            if isinstance(event, Text):
                part.text += event.text
            elif isinstance(event, Reasoning):
                part.thinking += event.text
            elif isinstance(event, ToolStart):
                name = event.name
                identity = self._answer.call_id(name, event.index)
                self._call = {"index": event.index, "id": identity, "name": name, "arguments": ""}
            elif isinstance(event, ToolArguments) and self._call is not None:
                self._call["arguments"] += event.json
            else:
                self._end_call(part)
        if delta.finish is not None:
            self._reason = "length" if delta.finish.reason == "length" else "stop"
            self._end_call(part)
        return part

    def _end_call(self, part: Part) -> None:
        """Show a call, which is whole by now."""
        if self._call is not None:
            call, self._call = self._call, None
            function = {"index": call["index"], "name": call["name"], "arguments": _object(call["arguments"])}
            part.calls.append({"id": call["id"], "function": function})


def figures(usage: Usage, timings: Timings) -> Record:
    """Return counts, and durations in nanoseconds; the model is loaded before any request comes."""
    return {
        "total_duration": nanoseconds(timings.total),
        "load_duration": 0,
        "prompt_eval_count": usage.prompt,
        "prompt_eval_duration": nanoseconds(timings.first_token),
        "eval_count": usage.completion,
        "eval_duration": nanoseconds(timings.total - timings.first_token),
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


def line(record: Record) -> bytes:
    """Return a record as a line."""
    return json.dumps(record).encode() + b"\n"


def _object(text: str) -> Record:
    """Return a call's arguments; what is no object, because the answer was cut, is kept as it is."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"unparsed": text}


def _scored(score: TokenScore) -> Record:
    top = {"top_logprobs": [_token(one) for one in score.top]} if score.top else {}
    return {**_token(score), **top}


def _token(score: TokenScore) -> Record:
    return {"token": score.token, "logprob": score.logprob, "bytes": list(score.bytes)}
