"""Prometheus metrics. Labels take their values from closed sets, so that clients cannot make the page grow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, UntypedMetricFamily
from prometheus_client.registry import Collector

from core.api.errors import CoreError
from core.plugins.kinds import PARTICIPATING
from core.server.errors import ApiError
from core.server.figures import MODEL, Families, OwnFigures, labelled, token_bounds
from core.server.interface import ServedLLM
from core.server.plugin_routes.figures import PluginFigures
from core.server.refusals import reason_of
from core.server.tally import Distribution, TokenTally

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATIENCE = 1.0
"""Seconds that the page waits for the engine to tell the figures of its KV connectors."""

FINISH_REASONS = frozenset({"stop", "length", "abort", "error", "repetition"})

CLIENT_GONE = 499
"""Status that requests are counted with whose client went away before the answer began."""

UNMATCHED = "unmatched"
"""Route of requests that no route was found for."""

_TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640),
    2560,
)
_ITL = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40),
    80,
)
_E2E = (0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_PHASE = (0.001, 0.0025, 0.005, 0.01, 0.025, *_E2E)
_SEQUENCES = (1, 2, 5, 10, 20)


class Metrics:
    """The metrics of one server, in a registry of its own; every name below gets the label `model_name` on the page.

    Args:
        of_plugins: Figures of plugins, which are shown as they give them.
    """

    def __init__(self, llm: ServedLLM, of_plugins: Sequence[PluginFigures] = ()) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=False)
        self._llm = llm
        self._of_plugins = of_plugins
        self.http_requests = Counter(
            "core_http_requests", "HTTP responses by route template.", ["route", "status"], registry=registry
        )
        self.rejections = Counter(
            "core_admission_rejections", "Requests refused before the engine saw them.", ["reason"], registry=registry
        )
        self.success = Counter(
            "core_request_success", "Finished sequences by reason.", ["finished_reason"], registry=registry
        )
        self.prompt_tokens = Counter("core_prompt_tokens", "Prompt tokens of served requests.", registry=registry)
        self.cached_tokens = Counter(
            "core_prompt_tokens_cached", "Prompt tokens that came from the prefix cache.", registry=registry
        )
        self.tokens = TokenTally(_ITL)
        registry.register(self.tokens)
        self._add_times()
        self._add_sizes(token_bounds(llm.max_model_len))
        registry.register(EngineStats(llm))
        self.connectors = ParticipantStats(llm)
        registry.register(self.connectors)
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)

    def answered(self, route: str, status: int, error: ApiError | None) -> None:
        """Count an answer, and what it refuses.

        Args:
            route: Template of its path, or `UNMATCHED`.
            error: What it says, where that is known.
        """
        self.http_requests.labels(route, status).inc()
        reason = None if status == CLIENT_GONE else reason_of(status, error)
        if reason is not None:
            self.rejections.labels(reason).inc()

    def unheard(self, error: ApiError) -> None:
        """Count an answer that was given before any route was looked for."""
        self.answered(UNMATCHED, error.status, error)

    def show_sockets(self, count: Callable[[], int]) -> None:
        """Show how many web sockets are open, whenever the page is asked for."""
        Gauge("core_num_sockets", "Web sockets that are open.", registry=self.registry).set_function(count)

    def finished(self, reason: str) -> None:
        """Count the end of a sequence."""
        self.success.labels(reason if reason in FINISH_REASONS else "other").inc()

    def phases(self, times: Mapping[str, Any]) -> float:
        """Count how long a prompt's request waited, computed its prompt, and generated.

        Args:
            times: `RequestOutput.metrics` of its last output; what is not in it is not counted.

        Returns:
            Seconds from its first token to its last; 0 where there were none.
        """
        scheduled, first = times.get("first_scheduled_time"), times.get("first_token_time")
        if scheduled is None:
            return 0.0
        self.queue_time.observe(scheduled - times["arrival_time"])
        if first is None:
            return 0.0
        last = times["last_token_time"]
        self.prefill_time.observe(first - scheduled)
        self.decode_time.observe(last - first)
        self.inference_time.observe(last - scheduled)
        return float(last - first)

    def render(self) -> bytes:
        """Return the page."""
        own = self.own()
        known = OwnFigures(own)
        others = [one.page(known) for one in self._of_plugins]
        return b"".join([generate_latest(Families(own)), *others, generate_latest(self._process)])

    def own(self) -> list[Metric]:
        """Return core's figures of the moment."""
        labels = {MODEL: self._llm.model_name}
        return [labelled(family, labels) for family in self.registry.collect()]

    def _add_times(self) -> None:
        self.time_to_first_token = self._histogram("core_time_to_first_token_seconds", "Arrival to first token.", _TTFT)
        self.e2e_latency = self._histogram("core_e2e_request_latency_seconds", "Arrival to last token.", _E2E)
        self.queue_time = self._histogram(
            "core_request_queue_time_seconds", "Arrival in the engine's queue to first step.", _PHASE
        )
        self.prefill_time = self._histogram("core_request_prefill_time_seconds", "First step to first token.", _PHASE)
        self.decode_time = self._histogram("core_request_decode_time_seconds", "First token to last token.", _PHASE)
        self.inference_time = self._histogram(
            "core_request_inference_time_seconds", "First step to last token.", _PHASE
        )
        self.time_per_output_token = self._histogram(
            "core_request_time_per_output_token_seconds", "Mean time of a request's tokens behind the first.", _ITL
        )

    def _add_sizes(self, bounds: Sequence[float]) -> None:
        self.request_prompt_tokens = self._histogram("core_request_prompt_tokens", "Prompt tokens per request.", bounds)
        self.request_computed_tokens = self._histogram(
            "core_request_computed_tokens", "Prompt tokens per request that were not in the prefix cache.", bounds
        )
        self.request_generation_tokens = self._histogram(
            "core_request_generation_tokens", "Generated tokens per request.", bounds
        )
        self.request_max_tokens = self._histogram(
            "core_request_max_tokens", "The parameter max_tokens of requests.", bounds
        )
        self.request_sequences = self._histogram("core_request_sequences", "The parameter n of requests.", _SEQUENCES)

    def _histogram(self, name: str, text: str, bounds: Sequence[float]) -> Distribution:
        made = Distribution(name, text, bounds)
        self.registry.register(made)
        return made


class EngineStats(Collector):
    """The engine's own counters and gauges, read when the page is asked for."""

    def __init__(self, llm: ServedLLM) -> None:
        self._llm = llm

    def describe(self) -> Iterator[Metric]:
        """Return nothing: the names below clash with no other."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield one family per figure."""
        stats = self._llm.stats
        usage = stats.blocks_used / stats.blocks_total if stats.blocks_total else 0.0
        yield GaugeMetricFamily("core_num_requests_running", "Requests in the running batch.", value=stats.running)
        yield GaugeMetricFamily("core_num_requests_waiting", "Requests that wait for their turn.", value=stats.waiting)
        yield GaugeMetricFamily("core_kv_cache_usage_perc", "Used part of the KV cache, 0 to 1.", value=usage)
        yield GaugeMetricFamily("core_engine_healthy", "1 while the engine lives.", value=float(self._llm.healthy))
        for name, text, value in (
            ("core_engine_restarts", "Restarts of the engine.", self._llm.restarts),
            ("core_engine_steps", "Steps run.", stats.steps),
            ("core_num_preemptions", "Requests preempted.", stats.preemptions),
            ("core_prompt_tokens_computed", "Prompt tokens run through the model.", stats.prompt_tokens_computed),
            ("core_prefix_cache_queries", "Tokens looked up in the prefix cache.", stats.prefix_queries),
            ("core_prefix_cache_hits", "Tokens found in the prefix cache.", stats.prefix_hits),
            ("core_scheduled_tokens", "Tokens scheduled.", stats.scheduled_tokens),
            ("core_wasted_tokens", "Tokens computed and thrown away.", stats.wasted_tokens),
            ("core_dropped_messages", "Messages to or from the engine that could not be read.", stats.dropped_messages),
        ):
            yield CounterMetricFamily(name, text, value=value)


class ParticipantStats(Collector):
    """Figures of participants (`Participant.stats`, `KVConnector.stats`), as they were when the engine was last asked.

    The engine is asked when the page is: a step costs nothing more. A server without participants asks nobody, and one
    whose participants have no figures asks once.
    """

    def __init__(self, llm: ServedLLM) -> None:
        self._llm = llm
        self._figures: Mapping[str, Mapping[str, int | list[int]]] = {}
        self._some = True

    async def refresh(self) -> None:
        """Ask the engine; the figures stay as they are where it has no answer within `PATIENCE`."""
        config = self._llm.config
        if config is None or not self._llm.healthy or not self._some:
            return
        if not any(config.plan.of(kind.group) for kind in PARTICIPATING):
            return
        try:
            async with asyncio.timeout(PATIENCE):
                self._figures = await self._llm.call("participant_stats")
            self._some = bool(self._figures)
        except (CoreError, TimeoutError):
            return

    def describe(self) -> Iterator[Metric]:
        """Return nothing: the name below clashes with no other."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield one sample for each figure of each participant. Only its authors know which of them are counters."""
        labels = ["participant", "stat", "place"]
        family = UntypedMetricFamily(
            "core_participant_stat",
            "Figures of KV connectors and other participants, by their own names.",
            labels=labels,
        )
        for participant, figures in self._figures.items():
            for name, value in figures.items():
                for place, one in enumerate(value) if isinstance(value, list) else (("", value),):
                    family.add_metric([participant, name, str(place)], one)
        if family.samples:
            yield family
