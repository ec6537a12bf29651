"""Responses that are made while nobody waits, and streams that follow them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

import orjson

from core.api.serving import Outlet
from core.server.errors import ApiError, as_api_error, log_unexpected
from core.server.openai.responses.job import ResponseWork, encode
from core.server.openai.responses.output import Event
from core.server.openai.responses.store import Record, ResponseStore
from core.server.outlet import pour
from core.server.state import Lifecycle


def start(lifecycle: Lifecycle, store: ResponseStore, record: Record, job: ResponseWork) -> None:
    """Keep a response from now on, and make it beside its request. A server that stops waits for it as for others."""
    record.task = task = asyncio.create_task(_Work(lifecycle, store, record).run(job))
    record.append([encode(event) for event in job.queued()])
    store.put(record)
    lifecycle.work.add(task)
    task.add_done_callback(lifecycle.work.discard)


async def cancel(record: Record) -> None:
    """End a response that is being made. Harmless when it has ended."""
    if record.task is not None and not record.task.done():
        record.task.cancel()
        await asyncio.wait((record.task,))


@dataclass(frozen=True, slots=True)
class _Work:
    lifecycle: Lifecycle
    store: ResponseStore
    record: Record

    async def run(self, job: ResponseWork) -> None:
        try:
            async with aclosing(job.batches()) as batches:
                async for batch in batches:
                    self._log(batch)
        except asyncio.CancelledError:
            stopping = ApiError(503, "The server is shutting down.", code="draining")
            self._log(job.failed(stopping.told()) if self.lifecycle.stopped else job.cancelled())
        except Exception as error:
            log_unexpected(error)
            self._log(job.failed(as_api_error(error).told()))
        self.store.settle(self.record)

    def _log(self, events: list[Event]) -> None:
        self.store.extend(self.record, [encode(event) for event in events])


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
        await pour(self.record.follow(self.start), outlet)
