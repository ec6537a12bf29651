"""Responses that are made while nobody waits, and streams that follow them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

import orjson

from core.api import EngineClient, Outlet
from core_plugin_openai.responses.job import ResponseWork, encode
from core_plugin_openai.responses.output import Event
from core_plugin_openai.responses.store import Record, ResponseStore


def start(client: EngineClient, store: ResponseStore, record: Record, job: ResponseWork) -> None:
    """Keep a response from now on, and make it beside its request. A server that stops waits for it as for others."""
    record.task = client.spawn(_Work(client, store, record).run(job))
    record.append([encode(event) for event in job.queued()])
    store.put(record)


async def cancel(record: Record) -> None:
    """End a response that is being made. Harmless when it has ended."""
    if record.task is not None and not record.task.done():
        record.task.cancel()
        await asyncio.wait((record.task,))


@dataclass(frozen=True, slots=True)
class _Work:
    client: EngineClient
    store: ResponseStore
    record: Record

    async def run(self, job: ResponseWork) -> None:
        try:
            await job.run(self._log)
        except asyncio.CancelledError as error:
            self._log(job.failed(self.client.error(error)) if self.client.stopping else job.cancelled())
        except Exception as error:
            self._log(job.failed(self.client.error(error)))
        self.store.settle(self.record)

    def _log(self, events: list[Event]) -> bool:
        self.store.extend(self.record, [encode(event) for event in events])
        return True


@dataclass(frozen=True, slots=True)
class Follower:
    """The stream of a response that is made in the background; it may begin anywhere, and ends without harm.

    Attributes:
        start: Number of the first event.
    """

    record: Record
    start: int = 0

    async def collect(self) -> bytes:
        """Return the response as it is now."""
        return orjson.dumps(self.record.answer.to_dict())

    async def stream(self, outlet: Outlet) -> None:
        """Put the events into an outlet, those of the past at once."""
        async with aclosing(self.record.follow(self.start)) as pieces:
            async for data in pieces:
                if not outlet.put(data):
                    await outlet.room()
