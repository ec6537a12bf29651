"""`--metrics-compat vllm`: core's figures once more by the names, labels and buckets of vLLM's v1 engine."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from core.api import CacheFacts, EngineClient, Figure, FigureSample, Histogram, RouteRegistry

ENGINE: Mapping[str, str] = types.MappingProxyType({"engine": "0"})
"""The label that tells replicas of an engine apart; there is one."""

_TOKEN = (*(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40), 80)
_REQUEST = (*(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920), 7680)


def _same(*names: str) -> Mapping[str, str]:
    return {f"vllm:{name}": f"core_{name}" for name in names}


SERIES: Mapping[str, str] = types.MappingProxyType(
    {
        **_same("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions"),
        **_same("prefix_cache_queries", "prefix_cache_hits", "prompt_tokens", "prompt_tokens_cached"),
        **_same("generation_tokens", "request_success", "time_to_first_token_seconds", "inter_token_latency_seconds"),
        **_same("e2e_request_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds"),
        **_same("request_decode_time_seconds", "request_inference_time_seconds", "request_prompt_tokens"),
        **_same("request_generation_tokens", "request_time_per_output_token_seconds"),
        "vllm:request_prefill_kv_computed_tokens": "core_request_computed_tokens",
        "vllm:request_max_num_generation_tokens": "core_request_generation_tokens",
        "vllm:request_params_max_tokens": "core_request_max_tokens",
        "vllm:request_params_n": "core_request_sequences",
        # Names of versions before, which dashboards still ask for.
        "vllm:gpu_cache_usage_perc": "core_kv_cache_usage_perc",
        "vllm:time_per_output_token_seconds": "core_inter_token_latency_seconds",
    }
)
"""Their name -> core's, both without the `_total` of counters."""

BOUNDS: Mapping[str, tuple[float, ...]] = types.MappingProxyType(
    dict.fromkeys(("core_inter_token_latency_seconds", "core_request_time_per_output_token_seconds"), _TOKEN)
    | {"core_e2e_request_latency_seconds": _REQUEST}
    | {f"core_request_{phase}_time_seconds": _REQUEST for phase in ("queue", "prefill", "decode", "inference")}
)
"""Core's histogram -> ends of their buckets, which are some of its own; the other histograms have theirs."""

CACHE = "vllm:cache_config_info"


class VllmFigures:
    """The figures, as a route plugin that has no routes."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._client: EngineClient

    def declare(self, registry: RouteRegistry) -> None:
        """Declare the names."""
        registry.figures((*SERIES, CACHE), self.figures)

    def bind(self, client: EngineClient) -> None:
        """Remember whose figures they are."""
        self._client = client

    def figures(self, core: Mapping[str, Figure]) -> Iterator[Figure]:
        """Yield the figures of `SERIES`, and the settings of the cache."""
        for name, ours in SERIES.items():
            yield _renamed(core[ours], name, BOUNDS.get(ours))
        cache = self._client.operator.cache
        if cache is not None:
            yield _settings(cache, self._client.stats.blocks_total)


def _renamed(figure: Figure, name: str, bounds: tuple[float, ...] | None) -> Figure:
    """Return a figure under their name, with the label of the engine, and of its buckets those with these ends."""
    samples = [
        replace(one, value=_coarser(one.value, bounds), labels={**ENGINE, **one.labels}) for one in figure.samples
    ]
    return replace(figure, name=name, samples=samples)


def _coarser(value: float | Histogram, bounds: tuple[float, ...] | None) -> float | Histogram:
    return value.within(bounds) if isinstance(value, Histogram) and bounds is not None else value


def _settings(cache: CacheFacts, blocks: int) -> Figure:
    """Return the settings of the KV cache as labels of a constant."""
    settings = {
        **ENGINE,
        "block_size": str(cache.block_size),
        "cache_dtype": cache.dtype,
        "enable_prefix_caching": str(cache.prefix_caching),
        "gpu_memory_utilization": str(cache.memory_fraction),
        "num_gpu_blocks": str(blocks),
    }
    return Figure(CACHE, "Settings of the KV cache.", "gauge", [FigureSample(1.0, settings)])
