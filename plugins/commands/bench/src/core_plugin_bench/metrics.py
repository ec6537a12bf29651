"""From the timelines of requests to the figures of a serving benchmark. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.api import ConfigError
from core_plugin_bench.stats import describe, peak_in_windows, peak_overlap

METRICS: Mapping[str, str] = {
    "ttft": "Time to first token",
    "tpot": "Time per output token, without the first",
    "itl": "Inter-token latency",
    "e2el": "End-to-end latency",
    "client_queue_time": "Time in the client until a place was free",
    "e2el_including_client_queue": "End-to-end latency with the time in the client",
}

_OBJECTIVES = ("ttft", "tpot", "e2el")


@dataclass(slots=True)
class Record:
    """The timeline of one request; times in seconds, `start` on a clock that all records share.

    Attributes:
        ttft: From sending to the first token.
        itl: Gaps between arrivals after the first.
        latency: From sending to the last token.
        queue_time: From when the request was due to sending: what `--max-concurrency` made it wait.
        lag: How late the client was at the moment the request was due.
        error: Why the request failed; empty if it did not.
    """

    start: float = 0.0
    input_len: int = 0
    output_len: int = 0
    ttft: float = 0.0
    itl: list[float] = field(default_factory=list)
    latency: float = 0.0
    queue_time: float = 0.0
    lag: float = 0.0
    text: str = ""
    error: str = ""

    @property
    def tpot(self) -> float | None:
        """Mean time per token after the first; None with fewer than two tokens."""
        return (self.latency - self.ttft) / (self.output_len - 1) if self.output_len > 1 else None

    def token_times(self) -> list[float]:
        """Return the moments at which text arrived."""
        moments = [self.start + self.ttft]
        for gap in self.itl:
            moments.append(moments[-1] + gap)
        return moments


@dataclass(frozen=True, slots=True)
class Run:
    """A load that was sent.

    Attributes:
        duration: Seconds from the first request to the last answer.
        client_cpu: Seconds of CPU that the client itself took.
    """

    records: list[Record]
    duration: float
    client_cpu: float = 0.0


def parse_goodput(pairs: Sequence[str]) -> dict[str, float]:
    """Return `metric -> milliseconds` of objectives such as `ttft:200`.

    Raises:
        ConfigError: An objective is malformed or not of ttft, tpot, e2el.
    """
    objectives = {}
    for pair in pairs:
        match = re.fullmatch(r"(\w+):(\d+(?:\.\d+)?)", pair)
        if match is None or match[1] not in _OBJECTIVES:
            raise ConfigError(
                "CORE-C108",
                f"flag --goodput: {pair!r} is not one of {', '.join(_OBJECTIVES)} with milliseconds.",
                hint="Example: --goodput ttft:200 tpot:50",
            )
        objectives[match[1]] = float(match[2])
    return objectives


def meets(record: Record, objectives: Mapping[str, float]) -> bool:
    """Whether a request stayed within every objective; one without a time per token meets that objective."""
    measured = {"ttft": record.ttft, "tpot": record.tpot or 0.0, "e2el": record.latency}
    return all(measured[name] * 1e3 <= limit for name, limit in objectives.items())


def summarize(
    run: Run,
    *,
    metrics: Sequence[str],
    percentiles: Sequence[float],
    objectives: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return the figures of a run under the keys that scripts for vLLM's results read.

    Figures are of the requests that succeeded; `client_...` tells whether the client could keep up.

    Args:
        metrics: Of `METRICS`.
    """
    records, done = run.records, [record for record in run.records if not record.error]
    inputs, outputs = sum(record.input_len for record in done), sum(record.output_len for record in done)
    span = max(run.duration, 1e-9)
    good = sum(meets(record, objectives) for record in done) / span if objectives else None
    figures: dict[str, Any] = {
        "duration": run.duration,
        "completed": len(done),
        "failed": len(records) - len(done),
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "request_throughput": len(done) / span,
        "request_goodput": good,
        "output_throughput": outputs / span,
        "total_token_throughput": (inputs + outputs) / span,
        "max_output_tokens_per_s": float(peak_in_windows([time for record in done for time in record.token_times()])),
        "max_concurrent_requests": peak_overlap([(record.start, record.start + record.latency) for record in done]),
        "client_cpu_share": run.client_cpu / span,
        "client_max_lag_ms": max((record.lag for record in records), default=0.0) * 1e3,
    }
    samples = samples_of(done)
    for name in metrics:
        figures.update(describe(name, samples[name], percentiles))
    return figures


def samples_of(done: Sequence[Record]) -> dict[str, list[float]]:
    """Return the seconds that each of `METRICS` is made of, of requests that succeeded."""
    return {
        "ttft": [record.ttft for record in done],
        "tpot": [record.tpot for record in done if record.tpot is not None],
        "itl": [gap for record in done for gap in record.itl],
        "e2el": [record.latency for record in done],
        "client_queue_time": [record.queue_time for record in done],
        "e2el_including_client_queue": [record.queue_time + record.latency for record in done],
    }


def details(records: Sequence[Record]) -> dict[str, Any]:
    """Return the per-request lists of a detailed result."""
    return {
        "input_lens": [record.input_len for record in records],
        "output_lens": [record.output_len for record in records],
        "start_times": [record.start for record in records],
        "ttfts": [record.ttft for record in records],
        "itls": [record.itl for record in records],
        "latencies": [record.latency for record in records],
        "queue_times": [record.queue_time for record in records],
        "generated_texts": [record.text for record in records],
        "errors": [record.error for record in records],
    }
