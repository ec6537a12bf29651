"""`--metrics-compat vllm`: every figure that vLLM documents for its v1 engine is there, or is known not to be."""

import pytest
from core_plugin_vllm_flags.figures import SERIES
from prometheus_client.parser import text_string_to_metric_families

DOCUMENTED = {
    **dict.fromkeys(("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"), "gauge"),
    **dict.fromkeys(("prefix_cache_queries", "prefix_cache_hits", "num_preemptions", "prompt_tokens"), "counter"),
    **dict.fromkeys(("prompt_tokens_cached", "generation_tokens", "request_success"), "counter"),
    **dict.fromkeys(("time_to_first_token_seconds", "inter_token_latency_seconds"), "histogram"),
    **dict.fromkeys(("request_time_per_output_token_seconds", "e2e_request_latency_seconds"), "histogram"),
    **dict.fromkeys((f"request_{phase}_time_seconds" for phase in ("queue", "prefill", "decode")), "histogram"),
    **dict.fromkeys(("request_inference_time_seconds", "request_prompt_tokens"), "histogram"),
    **dict.fromkeys(("request_generation_tokens", "request_max_num_generation_tokens"), "histogram"),
    **dict.fromkeys(("request_params_n", "request_params_max_tokens"), "histogram"),
    **dict.fromkeys(("request_prefill_kv_computed_tokens", "time_per_output_token_seconds"), "histogram"),
    "gpu_cache_usage_perc": "gauge",
    "cache_config_info": "gauge",
}
"""The names of its v1 engine, without features that core lacks (see ABSENT), with the types that dashboards expect."""

ABSENT = {
    "iteration_tokens_total": "would cost every step",
    "lora_requests_info": "no adapters",
    "engine_sleep_state": "no sleep mode",
    "num_requests_waiting_by_reason": "one queue",
    "corrupted_requests": "such a row fails, and counts as request_success with finished_reason error",
    **dict.fromkeys(("mm_cache_queries", "mm_cache_hits"), "text only"),
    **dict.fromkeys(("external_prefix_cache_queries", "external_prefix_cache_hits"), "connectors tell their own"),
    **dict.fromkeys((f"spec_decode_num_{what}" for what in ("drafts", "draft_tokens", "accepted_tokens")), "drafters"),
}

LATENCY = "0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 120.0 240.0 480.0 960.0 1920.0 7680.0"
TOKEN = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0"
FIRST = "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 160.0 640.0 2560.0"
LENGTH = "1.0 2.0 5.0 10.0 20.0 50.0 100.0 200.0 500.0"
BUCKETS = {
    **dict.fromkeys(("e2e_request_latency_seconds", "request_inference_time_seconds"), LATENCY),
    **dict.fromkeys((f"request_{phase}_time_seconds" for phase in ("queue", "prefill", "decode")), LATENCY),
    **dict.fromkeys(("inter_token_latency_seconds", "request_time_per_output_token_seconds"), TOKEN),
    "time_per_output_token_seconds": TOKEN,
    "time_to_first_token_seconds": FIRST,
    **dict.fromkeys(("request_prompt_tokens", "request_generation_tokens", "request_params_max_tokens"), LENGTH),
    **dict.fromkeys(("request_max_num_generation_tokens", "request_prefill_kv_computed_tokens"), LENGTH),
    "request_params_n": "1.0 2.0 5.0 10.0 20.0",
}
"""Ends of their histograms' buckets, for a model of 512 tokens."""


class Configured:
    """What the figures of the cache are read from."""

    class plan:
        of = staticmethod(lambda group: ())

    class options:
        class kv:
            prefix_caching, memory_fraction = True, 0.9

    block_size, kv_dtype = 16, "bfloat16"


@pytest.fixture
def families(build, fake):
    def read(**options):
        llm = fake(reply="abc", cached=1, config=Configured())
        api = build(llm, **options)
        api.post("/v1/completions", {"prompt": "xy", "n": 2, "max_tokens": 7})
        return {one.name: one for one in text_string_to_metric_families(api.get("/metrics").text)}

    return read


@pytest.mark.covers("OBS-04")
def test_every_documented_name_has_its_type_its_labels_and_its_buckets(families):
    found = families(metrics_compat="vllm")
    assert {name.removeprefix("vllm:") for name in found if name.startswith("vllm:")} >= set(DOCUMENTED)
    assert not {f"vllm:{name}" for name in ABSENT} & set(found)
    for name, kind in DOCUMENTED.items():
        family = found[f"vllm:{name}"]
        assert family.type == kind, name
        for sample in family.samples:
            assert sample.labels["engine"] == "0", name
            assert name == "cache_config_info" or sample.labels["model_name"] == "acme/tiny", name
        ends = [sample.labels["le"] for sample in family.samples if sample.name.endswith("_bucket")]
        assert ends == ([*BUCKETS[name].split(), "+Inf"] if kind == "histogram" else []), name
    reasons = {sample.labels["finished_reason"] for sample in found["vllm:request_success"].samples}
    assert reasons == {"stop"}
    assert found["vllm:cache_config_info"].samples[0].labels == {
        "engine": "0",
        "block_size": "16",
        "cache_dtype": "bfloat16",
        "enable_prefix_caching": "True",
        "gpu_memory_utilization": "0.9",
        "num_gpu_blocks": "10",
    }


@pytest.mark.covers("OBS-04")
def test_both_names_tell_the_same(families):
    found = families(metrics_compat="vllm")

    def values(name):
        pairs = {
            sample.name.removeprefix(name): sample.value
            for sample in found[name].samples
            if "_created" not in sample.name
        }
        return {rest: value for rest, value in pairs.items() if rest != "_bucket"}

    for theirs, ours in SERIES.items():
        assert values(theirs) == values(ours), theirs
    assert values("vllm:prompt_tokens") == {"_total": 3} and values("vllm:generation_tokens") == {"_total": 6}
    assert values("vllm:request_prefill_kv_computed_tokens") == {"_count": 1, "_sum": 2}
    assert values("vllm:request_params_n")["_sum"] == 2 and values("vllm:request_params_max_tokens")["_sum"] == 7


def test_they_are_shown_where_they_are_asked_for(families):
    assert not [name for name in families() if name.startswith("vllm:")]
