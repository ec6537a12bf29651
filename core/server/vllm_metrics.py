"""`--metrics-compat vllm`: our figures once more by the names, labels and buckets of vLLM's v1 engine."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from core.config.resolved import EngineConfig
from core.server.figures import Alias, Collects
from core.server.interface import ServedLLM

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
"""Their name -> ours, both without the `_total` of counters."""

BOUNDS: Mapping[str, tuple[float, ...]] = types.MappingProxyType(
    dict.fromkeys(("core_inter_token_latency_seconds", "core_request_time_per_output_token_seconds"), _TOKEN)
    | {"core_e2e_request_latency_seconds": _REQUEST}
    | {f"core_request_{phase}_time_seconds": _REQUEST for phase in ("queue", "prefill", "decode", "inference")}
)
"""Our histogram -> ends of their buckets, which are some of ours; the other histograms have theirs."""

CACHE = "vllm:cache_config_info"


def vllm_names(llm: ServedLLM) -> Callable[[Collects], Collector]:
    """Return what shows our figures by the other names."""
    return lambda figures: _VllmNames(figures, llm)


class _VllmNames(Collector):
    def __init__(self, figures: Collects, llm: ServedLLM) -> None:
        self._figures = figures
        self._llm = llm

    def collect(self) -> Iterator[Metric]:
        """Yield the families of `SERIES`, and the settings of the cache."""
        found = {family.name: family for family in self._figures.collect()}
        for name, ours in SERIES.items():
            yield Alias(name, BOUNDS.get(ours), added=ENGINE).of(found[ours])
        if self._llm.config is not None:
            yield _cache(self._llm.config, self._llm.stats.blocks_total)


def _cache(config: EngineConfig, blocks: int) -> Metric:
    """Return the settings of the KV cache as labels of a constant."""
    settings = {
        **ENGINE,
        "block_size": str(config.block_size),
        "cache_dtype": config.kv_dtype,
        "enable_prefix_caching": str(config.options.kv.prefix_caching),
        "gpu_memory_utilization": str(config.options.kv.memory_fraction),
        "num_gpu_blocks": str(blocks),
    }
    family = GaugeMetricFamily(CACHE, "Settings of the KV cache.", labels=list(settings))
    family.add_metric(list(settings.values()), 1.0)
    return family
