"""Stat sinks of the front end: told of the engine's figures and of every finished request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import fields

from core.api.sinks import EngineStats, FinishedRequest, StatSink
from core.engine.messages import Stats
from core.frontend.requests import RequestState

logger = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two records."""

_NAMES = tuple(field.name for field in fields(EngineStats))


class StatSinks:
    """The sinks of one front end, with their owners. A sink that raises is logged and told again next time."""

    def __init__(self, sinks: Sequence[tuple[str, StatSink]] = ()) -> None:
        self._sinks = list(sinks)
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
        """Close the sinks; nothing is passed on any more."""
        self._tell(lambda sink: sink.close())
        self._sinks.clear()

    def _tell(self, what: Callable[[StatSink], None]) -> None:
        for owner, sink in self._sinks:
            try:
                what(sink)
            except Exception:
                logger.exception("stat sink %s failed", owner)


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
    )
