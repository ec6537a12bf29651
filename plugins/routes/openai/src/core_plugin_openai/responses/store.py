"""Responses that are kept in memory: so many, so many bytes, the least recently used ones go first."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

import orjson

from core.api.errors import RequestError
from core_plugin_openai.responses.answer import Answer
from core_plugin_openai.responses.items import Item


@dataclass(slots=True, eq=False)
class Record:
    """A response that is kept, finished or not.

    Attributes:
        answer: The response; grows while it runs.
        earlier: Items of the conversation before this response's input.
        input: This response's own input items.
        task: What makes it, if it is made in the background.
        log: Its encoded events by sequence number, if it is made in the background.
        size: Bytes it is counted as.
    """

    answer: Answer
    earlier: Sequence[Item]
    input: Sequence[Item]
    task: asyncio.Task[None] | None = None
    log: list[bytes] = field(default_factory=list)
    size: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def background(self) -> bool:
        """Whether it was made in the background."""
        return self.task is not None

    def conversation(self) -> list[Item]:
        """Return all items up to the end of this response."""
        return [*self.earlier, *self.input, *self.answer.output]

    def append(self, events: Sequence[bytes]) -> None:
        """Log events and wake those who follow."""
        self.log += events
        self.wake()

    def wake(self) -> None:
        """Let those who follow look again."""
        self._news.set()
        self._news = asyncio.Event()

    async def follow(self, start: int) -> AsyncGenerator[bytes, None]:
        """Yield the events from number `start` on, until the response has ended."""
        while True:
            news, ended = self._news, self.answer.ended
            if start < len(self.log):
                found = self.log[start:]
                start += len(found)
                yield b"".join(found)
            elif ended:
                return
            else:
                await news.wait()


class ResponseStore:
    """Finds responses by id.

    Args:
        max_count: Most responses; 0 keeps none.
        max_bytes: Most bytes of all together, conversations and events included. Running responses are never thrown
            away, but no further one is taken while they fill the store.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count, self._max_bytes = max_count, max_bytes
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, record: Record) -> bool:
        return record.answer.id in self._records

    @property
    def enabled(self) -> bool:
        """Whether anything is kept."""
        return self._max_count > 0

    @property
    def size(self) -> int:
        """Bytes of all responses."""
        return self._bytes

    def get(self, name: str, param: str | None = None) -> Record:
        """Return a response and count that as a use. Raises `RequestError` 404."""
        record = self._records.get(name)
        if record is None:
            why = (
                "It was not kept (store: false), has made room for newer ones, or never was."
                if self.enabled
                else "This server keeps no responses: start it with --response-store, or send the whole conversation."
            )
            message = f"There is no response '{name[:100]}'. {why}"
            raise RequestError(message, param=param, code="response_not_found", status=404)
        self._records.move_to_end(name)
        return record

    def finder(self) -> Callable[[str], Item | None]:
        """Return what finds output items of kept responses; they are gone through once, when the first is asked for.

        Ids of input items are the clients' own and may be anybody's; those of output items cannot be guessed.
        """
        found: dict[str, Item] = {}

        def find(name: str) -> Item | None:
            if not found:
                for record in self._records.values():
                    found.update((item["id"], item) for item in record.answer.output)
            return found.get(name)

        return find

    def admit(self) -> None:
        """Refuse another running response while those that run fill the store. Raises `RequestError` 503."""
        running = [record for record in self._records.values() if not record.answer.ended]
        if len(running) >= self._max_count or sum(record.size for record in running) >= self._max_bytes:
            message = "The responses that run in the background fill the store; try again soon."
            raise RequestError(message, code="queue_full", status=503)

    def put(self, record: Record) -> None:
        """Keep a response, as large as it is now."""
        self._records[record.answer.id] = record
        self.settle(record)

    def settle(self, record: Record) -> None:
        """Count a response again, whose answer has changed."""
        if record in self:
            parts = orjson.dumps([record.answer.to_dict(), *record.earlier, *record.input])
            self._grow(record, len(parts) + sum(map(len, record.log)) - record.size)

    def extend(self, record: Record, events: Sequence[bytes]) -> None:
        """Log events of a response, wherever it is kept by now."""
        record.append(events)
        if record in self:
            self._grow(record, sum(map(len, events)))

    def drop(self, name: str) -> Record:
        """Forget a response and return it. Raises `RequestError` 404."""
        record = self.get(name)
        del self._records[name]
        self._bytes -= record.size
        return record

    def _grow(self, record: Record, size: int) -> None:
        record.size += size
        self._bytes += size
        while len(self._records) > self._max_count or self._bytes > self._max_bytes:
            oldest = next((name for name, other in self._records.items() if other.answer.ended), None)
            if oldest is None:
                return
            self._bytes -= self._records.pop(oldest).size
