"""Stat sinks: whatever the figures are they are taken at once, and `close` is the end."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from core.api.requests import Caller
from core.api.sinks import EngineStats, FinishedRequest, StatSink
from core_testing.conformance.outcome import Failed, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.footprint import Footprint
from core_testing.conformance.tools.options import every_options

BUDGET = 0.005
"""Seconds that a median call may take."""

_CALLS = 41
_TRIES = 3
_PATIENCE = 2.0
"""Seconds that threads and processes may take to disappear."""

_CLOSING = 10.0
"""Seconds that flushing may take."""

_STATS = (
    EngineStats(),
    EngineStats(running=3, waiting=1, blocks_total=64, blocks_used=17, steps=9, prompt_tokens_computed=120),
    EngineStats(*([2**53] * len(EngineStats.__dataclass_fields__))),
)
_REQUESTS = (
    FinishedRequest("cmpl-1", 12, 0, 30, ("stop",), 0.001, 0.02, 0.4),
    FinishedRequest("", 0, 0, 0, (), None, None, 0.0),
    FinishedRequest("never started", 7, 0, 0, ("abort",), None, None, 0.5),
    FinishedRequest("\u2603 \n\"'", 10**9, 10**9, 10**9, ("length", "", "error: x\ny"), 0.0, 0.0, 1e9),
    FinishedRequest("named", 7, 0, 1, ("stop",), 0.0, 0.1, 0.2, Caller("\u2603 \n\"'", "key-0123456789abcdef")),
)


def every_figure_is_taken(subject: Subject) -> None:
    """No figure and no finished request makes it raise: not zeros, not great numbers, not moments that never came."""
    with _made(subject) as sinks:
        for sink in sinks:
            for stats in _STATS:
                _require_taken(sink.record, stats)
            for request in _REQUESTS:
                _require_taken(sink.finished, request)
            _require_taken(sink.record, _STATS[1])
            sink.close()


def calls_return_at_once(subject: Subject) -> None:
    """The median `record` and `finished` returns within 5 ms: a slower sink misses records of a busy server."""
    with _made(subject) as sinks:
        for sink in sinks:
            calls = {"record": lambda sink=sink: sink.record(_STATS[1])}
            calls["finished"] = lambda sink=sink: sink.finished(_REQUESTS[0])
            for name, call in calls.items():
                # A busy machine is no fault of the plugin's: the best of a few medians counts.
                seconds = min(statistics.median(_time(call) for _ in range(_CALLS)) for _ in range(_TRIES))
                require(seconds <= BUDGET, f"{name} takes {seconds * 1000:.1f} ms, allowed {BUDGET * 1000:g}")
            sink.close()


def close_ends_everything(subject: Subject) -> None:
    """`close` returns, also if nothing ever came, and then no thread and no process of the sink is left."""
    for figures in ((), _STATS[:2]):
        before = Footprint.now()
        with _made(subject) as sinks:
            for sink in sinks:
                for stats in figures:
                    sink.record(stats)
                begin = time.monotonic()
                sink.close()
                seconds = time.monotonic() - begin
                require(seconds < _CLOSING, f"close takes {seconds:.0f} s")
        before.require_nothing_more(_PATIENCE)


def sinks_share_nothing(subject: Subject) -> None:
    """Two sinks side by side: closing one leaves the other working."""
    with _made(subject) as first, _made(subject) as second:
        for one, other in zip(first, second):
            one.record(_STATS[1])
            one.close()
            _require_taken(other.record, _STATS[1])
            _require_taken(other.finished, _REQUESTS[0])
            other.close()


@contextmanager
def _made(subject: Subject) -> Iterator[list[StatSink]]:
    """Make a sink with each set of options, in a directory of the kit's: a relative path may be a default."""
    with contextlib.chdir(subject.folder()):
        sinks: list[StatSink] = [subject.impl()(options) for options in every_options(subject)]
        try:
            yield sinks
        except BaseException:
            # The threads of a sink that is left open would keep this process from ending.
            for sink in sinks:
                with contextlib.suppress(Exception):
                    sink.close()
            raise


def _require_taken(take: Callable[..., None], figures: object) -> None:
    try:
        take(figures)
    except Exception as error:
        raise Failed(f"{figures!r} makes it raise {type(error).__name__}: {error}") from error


def _time(call: Callable[[], None]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


CHECKS = checks(every_figure_is_taken, calls_return_at_once, close_ends_everything, sinks_share_nothing)
