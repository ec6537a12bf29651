"""Making one response: every form of the answer comes from the same events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from core.api.errors import RequestError
from core.api.serving import Dialect, Outlet, Usage
from core.frontend.answering.reader import AnswerReader
from core.frontend.results import CompletionOutput, RequestOutput
from core.server.dialect import error_object
from core.server.generation import More, Take
from core.server.openai.responses.answer import (
    CANCELLED,
    COMPLETED,
    IN_PROGRESS,
    INCOMPLETE,
    QUEUED,
    Answer,
    usage_object,
)
from core.server.openai.responses.composer import Composer
from core.server.openai.responses.output import Event, Score

OUT_OF_TOKENS = "max_output_tokens"


class Counted(Protocol):
    """What is generated, and how much of it."""

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        ...


class Outputs(Counted, Protocol):
    """One generation."""

    def outputs(self) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        """Yield what is new; closing it ends the generation."""
        ...

    async def run(self, take: Take, more: More | None = None) -> None:
        """Give everything to `take` (see `Generation.run`)."""
        ...


@dataclass(slots=True)
class ResponseWork(ABC):
    """What is on its way to being a response.

    Attributes:
        reader: Reads what the model says.
        scores: Makes the log-probabilities of an output's tokens; None for none.
        on_end: Called when the response has ended by itself, before its last event is sent.
    """

    generation: Counted
    answer: Answer
    composer: Composer
    reader: AnswerReader
    scores: Callable[[CompletionOutput], Sequence[Score]] | None = None
    on_end: Callable[[], None] = lambda: None
    _number: int = field(default=0, init=False)

    async def collect(self) -> bytes:
        """Return the whole answer as JSON."""
        async with aclosing(self.batches()) as batches:
            async for _ in batches:
                continue
        return orjson.dumps(self.answer.to_dict())

    async def stream(self, outlet: Outlet) -> None:
        """Put the answer into an outlet as server-sent events; what one engine output brings is put at once."""
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                if not outlet.put(encoded(batch)):
                    await outlet.room()

    @abstractmethod
    def batches(self) -> AsyncGenerator[list[Event], None]:
        """Yield the events, numbered and folded into the answer, as they come."""
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

    def _heard(self, output: RequestOutput) -> tuple[list[Event], str | None]:
        """Return an output's events, and why the model stopped if it did."""
        events: list[Event] = []
        reason = None
        for sequence in output.outputs:
            scores = self.scores(sequence) if self.scores is not None else ()
            events += self.composer.add(self.reader.read(sequence), sequence.token_ids, scores)
            reason = sequence.finish_reason or reason
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

    generation: Outputs

    async def batches(self) -> AsyncGenerator[list[Event], None]:
        """Yield the events, numbered and folded into the answer, as they come.

        The first ones wait for the engine's first output, so that a request it refuses gets an HTTP status.
        """
        ended: str | None = None
        async with aclosing(self.generation.outputs()) as outputs:
            async for _, output in outputs:
                batch, ended = self._batch(output)
                if batch:
                    yield batch
                if self.composer.full:
                    break
        yield self._numbered(self._closing(ended))

    async def stream(self, outlet: Outlet) -> None:
        """Put the events of `batches` into an outlet."""
        ended: str | None = None

        def take(_: int, output: RequestOutput) -> bool:
            nonlocal ended
            batch, ended = self._batch(output)
            room = not batch or outlet.put(encoded(batch))
            return room and not self.composer.full

        async def more() -> bool:
            if not self.composer.full:  # else nothing more is generated while the client catches up
                await outlet.room()
            return not self.composer.full

        await self.generation.run(take, more)
        outlet.put(encoded(self._numbered(self._closing(ended))))

    def _batch(self, output: RequestOutput) -> tuple[list[Event], str | None]:
        """Return an output's events, and why the model stopped if it did."""
        opening = self._opening(output)
        events, ended = self._heard(output)
        self._fold(events)
        return self._numbered([*opening, *events]), "stop" if self.composer.full else ended

    def _opening(self, output: RequestOutput) -> list[Event]:
        if self.answer.prompt_ids == []:
            self.answer.prompt_ids = output.prompt_token_ids
        return [] if self._number and self.answer.status == IN_PROGRESS else self._started()


def stream_dialect(job: ResponseWork) -> Dialect:
    """Return how a stream says, by events of the API, that its response failed; there is no `[DONE]`."""

    def failed(error: RequestError) -> bytes:
        job.answer.stored = False  # only responses that have ended by themselves are kept
        return encoded(job.failed(error))

    return Dialect(error_object, failed=failed)


def encode(event: Event) -> bytes:
    """Return an event as it is sent."""
    kind: str = event["type"]
    return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"


def encoded(events: Iterable[Event]) -> bytes:
    """Return events as they are sent."""
    return b"".join(map(encode, events))
