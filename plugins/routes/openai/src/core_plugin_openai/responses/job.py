"""Making one response: every form of the answer comes from the same events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from core.api import Answer as Generation
from core.api import Delta, Outlet, RequestError, Usage
from core_plugin_openai.logprobs import chat_logprobs
from core_plugin_openai.responses.answer import (
    CANCELLED,
    COMPLETED,
    IN_PROGRESS,
    INCOMPLETE,
    QUEUED,
    Answer,
    usage_object,
)
from core_plugin_openai.responses.composer import Composer
from core_plugin_openai.responses.output import Event

OUT_OF_TOKENS = "max_output_tokens"

Put = Callable[[list[Event]], bool]
"""Takes events; False: `Room` is awaited before the next."""

Room = Callable[[], Awaitable[None]]
"""Returns once there is room for more."""


async def no_wait() -> None:
    """Wait for nothing: there always is room."""


class Counted(Protocol):
    """A generation, or several, with a count of the tokens."""

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        ...


@dataclass(slots=True)
class ResponseWork(ABC):
    """A response in the making.

    Attributes:
        as_ids: Log-probabilities name tokens by their ids.
        on_end: Called when the response has ended by itself, before its last event is sent.
    """

    generation: Counted
    answer: Answer
    composer: Composer
    as_ids: bool = False
    on_end: Callable[[], None] = lambda: None
    _number: int = field(default=0, init=False)

    async def collect(self) -> bytes:
        """Return the whole answer as JSON."""
        await self.run(lambda events: True)
        return orjson.dumps(self.answer.to_dict())

    async def stream(self, outlet: Outlet) -> None:
        """Put the answer into an outlet as server-sent events; what one step brings is put at once."""
        await self.run(lambda events: outlet.put(encoded(events)), outlet.room)

    @abstractmethod
    async def run(self, put: Put, room: Room = no_wait) -> None:
        """Give the events, numbered and folded into the answer, to `put` in the turn in which they come."""
        ...

    def queued(self) -> list[Event]:
        """Return the events of a response that waits for its turn in the background."""
        self.answer.status = QUEUED
        return self._numbered([self._lifecycle("created"), self._lifecycle(QUEUED)])

    def failed(self, error: RequestError) -> list[Event]:
        """Return the events of an answer that broke off; none if it has ended."""
        if self.answer.ended:
            return []
        events = self._fold(self._cut())
        self.answer.fail(error, self._usage())
        return self._numbered([*events, self._lifecycle("failed")])

    def cancelled(self) -> list[Event]:
        """Return the events of an answer that somebody ended, if it has not. The API has no event of its own for it."""
        if self.answer.ended:
            return []
        events = self._fold(self._cut())
        self.answer.end(CANCELLED, self._usage())
        return self._numbered([*events, self._lifecycle(INCOMPLETE)])

    def _cut(self) -> list[Event]:
        """Return the events of what an answer that broke off leaves open."""
        return self.composer.finish(INCOMPLETE)

    def _started(self) -> list[Event]:
        self.answer.status = IN_PROGRESS
        first = [] if self._number else [self._lifecycle("created")]
        return [*first, self._lifecycle(IN_PROGRESS)]

    def _heard(self, deltas: Sequence[Delta]) -> tuple[list[Event], str | None]:
        """Return a step's events, and why the model stopped if it did."""
        events: list[Event] = []
        reason = None
        for delta in deltas:
            scores = chat_logprobs(delta.scores, as_ids=self.as_ids) if delta.scores else ()
            events += self.composer.add(delta.events, delta.token_ids, scores)
            reason = reason if delta.finish is None else delta.finish.reason
        return events, reason

    def _closing(self, ended: str | None) -> list[Event]:
        status = COMPLETED if ended == "stop" else INCOMPLETE
        events = self._fold(self.composer.finish(status))
        self.answer.end(status, self._usage(), OUT_OF_TOKENS if ended == "length" else None)
        rest = self.composer.rest()
        self.answer.add_ids(rest)
        self.on_end()
        last = self._lifecycle(status)
        return [*events, {**last, "token_ids": rest} if rest else last]

    def _note_prompt(self, generation: Generation) -> None:
        """Note the tokens of the first prompt, where they are asked for."""
        if self.answer.prompt_ids == []:
            self.answer.prompt_ids = list(generation.prompts[0].ids)

    def _fold(self, events: list[Event]) -> list[Event]:
        for event in events:
            self.answer.add(event)
        return events

    def _lifecycle(self, what: str) -> Event:
        return {"type": f"response.{what}", "response": self.answer.to_dict()}

    def _numbered(self, events: list[Event]) -> list[Event]:
        for event in events:
            event["sequence_number"] = self._number
            self._number += 1
        return events

    def _usage(self) -> dict[str, Any]:
        usage = self.generation.usage
        return usage_object(usage.prompt, usage.cached, usage.completion, self.composer.reasoning_tokens)


@dataclass(slots=True)
class ResponseJob(ResponseWork):
    """A generation on its way to being a response."""

    generation: Generation

    async def run(self, put: Put, room: Room = no_wait) -> None:
        """Give the events to `put`.

        The first ones wait for the engine's first output, so that a request it refuses gets an HTTP status.
        """
        ended: str | None = None

        def take(deltas: Sequence[Delta]) -> bool:
            nonlocal ended
            batch, ended = self._batch(deltas)
            fits = not batch or put(batch)
            return fits and not self.composer.full

        async def more() -> bool:
            if not self.composer.full:  # else nothing more is generated while the client catches up
                await room()
            return not self.composer.full

        await self.generation.run(take, more)
        put(self._numbered(self._closing(ended)))

    def _batch(self, deltas: Sequence[Delta]) -> tuple[list[Event], str | None]:
        """Return a step's events, and why the model stopped if it did."""
        opening = self._opening()
        events, ended = self._heard(deltas)
        self._fold(events)
        return self._numbered([*opening, *events]), "stop" if self.composer.full else ended

    def _opening(self) -> list[Event]:
        self._note_prompt(self.generation)
        return [] if self._number and self.answer.status == IN_PROGRESS else self._started()


def encode(event: Event) -> bytes:
    """Return an event as it is sent."""
    kind: str = event["type"]
    return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"


def encoded(events: Iterable[Event]) -> bytes:
    """Return events as they are sent."""
    return b"".join(map(encode, events))
