"""Manifest of the reference attention backend: its descriptor as data; imports neither torch nor the implementation."""

from __future__ import annotations

from core.api.descriptors import AttentionSpec

DTYPES = frozenset({"float32", "bfloat16", "float16"})

TORCH_SDPA = AttentionSpec(
    name="torch_sdpa",
    impl="core_plugin_torch_sdpa.backend:TorchSdpaBackend",
    api=2,
    summary="Paged attention in plain torch; runs wherever torch runs",
    band=1,
    maturity="reference",
    devices=frozenset({"cpu", "cuda", "xpu"}),
    dtypes=DTYPES,
    kv_dtypes=DTYPES | {"float8_e4m3fn", "float8_e5m2", "int8"},
    features=frozenset(
        {
            "sliding_window",
            "softcap",
            "alibi",
            "alibi_root",
            "sinks",
            "chunked",
            "latent",
            "picks",
            "compressed",
            "head_scales",
            "bidirectional",
            "position_bias",
            "replayable",
            "replayable_prompts",
        }
    ),
)
