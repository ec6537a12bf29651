"""Stat sinks of the front end: told of the engine's figures and of every finished request."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

from core.api.sinks import EngineStats, FinishedRequest, StatSink
from core.engine.messages import Stats
from core.frontend.requests import RequestState
from core.plugins.faults import Faults

Told = Callable[[StatSink], None]

INTERVAL = 1.0
"""Seconds between two records."""

BACKLOG = 1000
"""Records that wait for a sink; further ones are dropped."""

PATIENCE = 5.0
"""Seconds that closing waits for a sink."""

_NAMES = tuple(field.name for field in fields(EngineStats))


class SinkThread:
    """One sink on a thread of its own: whoever serves requests never waits for it.

    Args:
        faults: What it raises, and the records that were dropped because it is too slow, are accounted for there.
    """

    def __init__(self, sink: StatSink, faults: Faults) -> None:
        self.faults = faults
        self._sink = sink
        self._due: queue.Queue[Told | None] = queue.Queue(BACKLOG)
        self._thread = threading.Thread(target=self._run, name="stat-sink", daemon=True)
        self._thread.start()

    def tell(self, what: Told) -> None:
        """Have `what` done, in its turn; dropped if too much waits already."""
        try:
            self._due.put_nowait(what)
        except queue.Full:
            self.faults.note(f"it is behind by {BACKLOG} records")

    def close(self, deadline: float) -> None:
        """Close the sink behind what waits, and wait for that until `deadline` (of `time.monotonic`)."""
        with suppress(queue.Full):
            self._due.put(None, timeout=max(0.0, deadline - time.monotonic()))
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self.faults.note(f"it has not closed within {PATIENCE:g} s")

    def _run(self) -> None:
        while (what := self._due.get()) is not None:
            self._do("record() or finished()", what)
        self._do("close()", lambda sink: sink.close())

    def _do(self, name: str, what: Told) -> None:
        try:
            what(self._sink)
        except Exception as error:
            self.faults.raised(name, error)


class StatSinks:
    """The sinks of one front end. A sink that raises is told again next time; one that is slow misses records."""

    def __init__(self, sinks: Sequence[tuple[StatSink, Faults]] = ()) -> None:
        self._sinks = [SinkThread(sink, faults) for sink, faults in sinks]
        self._faults = [faults for _, faults in sinks]
        self._next = 0.0

    def observe(self, stats: Stats) -> None:
        """Pass on the engine's figures, at most once per interval."""
        if not self._sinks or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + INTERVAL
        record = engine_stats(stats)
        self._tell(lambda sink: sink.record(record))

    def finished(self, request: RequestState) -> None:
        """Pass on a request that has just ended."""
        if self._sinks:
            record = summary(request)
            self._tell(lambda sink: sink.finished(record))

    def close(self) -> None:
        """Close the sinks; nothing is passed on any more. Waits for them, but not for long."""
        deadline = time.monotonic() + PATIENCE
        for sink in self._sinks:
            sink.close(deadline)
        self._sinks.clear()

    def faults(self) -> list[dict[str, Any]]:
        """Return what went wrong in sinks, as plain data."""
        return [one.to_dict() for one in self._faults if one.count]

    def _tell(self, what: Told) -> None:
        for sink in self._sinks:
            sink.tell(what)


def engine_stats(stats: Stats) -> EngineStats:
    """Return the engine's figures as plugins see them."""
    return EngineStats(**{name: getattr(stats, name) for name in _NAMES})


def summary(request: RequestState) -> FinishedRequest:
    """Return what is known of a request that has ended."""
    times, arrival = request.metrics, request.metrics["arrival_time"]

    def since(name: str) -> float | None:
        return times[name] - arrival if name in times else None

    return FinishedRequest(
        request_id=request.request_id,
        prompt_tokens=len(request.prompt.ids),
        cached_tokens=request.num_cached_tokens,
        output_tokens=sum(sequence.num_tokens for sequence in request.sequences),
        finish_reasons=tuple(sequence.finish_reason or "" for sequence in request.sequences),
        queue_seconds=since("first_scheduled_time"),
        first_token_seconds=since("first_token_time"),
        total_seconds=times.get("finished_time", arrival) - arrival,
        caller=request.caller,
    )
